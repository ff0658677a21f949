// Sixteen lanes of floats or ints, the same words for every instruction set that the library is built for.
//
// The kernels speak of Floats, Ints, Bits and Sums only; which registers these are is decided here, by the flags of
// the compiler. The library is built once for each instruction set, and Python loads the one that fits the CPU.
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
