// Whether this build checks memory accesses (AddressSanitizer). Buffers are then allocated with exactly the size that was
// asked for, and anew for each use: spare room would hide writes past the end.
#pragma once

namespace ibidem {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace ibidem
