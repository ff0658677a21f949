// Marks a function that the library exports by its C name. All other symbols are hidden.
#pragma once

#define IBIDEM_EXPORT extern "C" __attribute__((visibility("default")))
