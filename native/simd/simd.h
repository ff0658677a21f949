// Sixteen lanes of floats or ints, with the same functions for every instruction set that the library is built for.
//
// The kernels use only Floats, Ints, Bits and Sums. The compiler's flags decide which registers these are. The library is
// built once for each instruction set, and Python loads the one that the CPU supports.
#pragma once

#include <cstdint>

namespace ibidem {

constexpr int kLanes = 16;

// One bit for each lane, the first lane lowest.
using Bits = uint32_t;
constexpr Bits kAllBits = 0xffff;

constexpr Bits first_bits(int count) { return count >= kLanes ? kAllBits : (Bits{1} << count) - 1; }

}  // namespace ibidem

#if defined(__AVX512VNNI__)
#include "simd/avx512.h"
#else
#include "simd/avx2.h"
#endif
