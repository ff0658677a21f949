// How a function leaves the library: by its plain C name. Everything else stays hidden.
#pragma once

#define IBIDEM_EXPORT extern "C" __attribute__((visibility("default")))
