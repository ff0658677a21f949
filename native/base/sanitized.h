// Whether this build checks memory accesses (AddressSanitizer). Buffers are then allocated anew for each use with exactly the
// requested size: spare elements would hide writes past the end.
#pragma once

namespace ibidem {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace ibidem
