// The 16 lanes as one AVX-512 register.
#pragma once

#include <immintrin.h>

#include <cstring>

namespace ibidem {

constexpr const char* kInstructions = "avx512";

struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};

inline Floats splat(float x) { return {_mm512_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Floats load_first(const float* p, int count) { return {_mm512_maskz_loadu_ps(first_bits(count), p)}; }
// Sets the lanes from count on to zero.
inline Floats keep_first(Floats x, int count) { return {_mm512_maskz_mov_ps(first_bits(count), x.v)}; }
inline Floats load_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Loads 16 signed bytes as numbers.
inline Floats load_bytes(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline void store(float* p, Floats x) { _mm512_storeu_ps(p, x.v); }
inline void store_first(float* p, Floats x, int count) { _mm512_mask_storeu_ps(p, first_bits(count), x.v); }

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c, rounded once.
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The result is NaN where b is NaN, and b where only a is NaN.
inline Floats max(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats min(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Floats abs(Floats a) { return {_mm512_abs_ps(a.v)}; }
inline Floats nearest(Floats a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// x * 2 ** n for whole n.
inline Floats scale_by_power(Floats x, Floats n) { return {_mm512_scalef_ps(x.v, n.v)}; }
// Moves a mask to a general register. In assembly because GCC 12 may spill a widened mask, write only 16 of its 32 bits and
// then count all 32.
inline Bits to_bits(__mmask16 mask) {
  Bits bits;
  asm("kmovw %1, %0" : "=r"(bits) : "k"(mask));
  return bits;
}
inline Bits at_least(Floats a, Floats b) { return to_bits(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)); }
inline float sum(Floats a) { return _mm512_reduce_add_ps(a.v); }
inline float largest(Floats a) { return _mm512_reduce_max_ps(a.v); }

inline Ints splat(int32_t x) { return {_mm512_set1_epi32(x)}; }
// The number of each lane.
inline Ints counting() { return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
inline Ints load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store(int32_t* p, Ints x) { _mm512_storeu_si512(p, x.v); }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Ints operator*(Ints a, Ints b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline Ints min(Ints a, Ints b) { return {_mm512_min_epi32(a.v, b.v)}; }
inline Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
// Adds the products of 16 pairs of int16 from memory with one pair.
inline Ints add_pairs(Ints sums, const int16_t* numbers, Ints pair) {
  return {_mm512_dpwssd_epi32(sums.v, _mm512_loadu_si512(numbers), pair.v)};
}
inline Bits below(Ints a, Ints b) { return to_bits(_mm512_cmplt_epi32_mask(a.v, b.v)); }
inline Bits equal(Ints a, Ints b) { return to_bits(_mm512_cmpeq_epi32_mask(a.v, b.v)); }
// Increments counts in the lanes where a < b.
inline Ints count_below(Ints counts, Ints a, Ints b) {
  return {_mm512_mask_add_epi32(counts.v, _mm512_cmplt_epi32_mask(a.v, b.v), counts.v, _mm512_set1_epi32(1))};
}
inline int32_t sum(Ints a) { return _mm512_reduce_add_epi32(a.v); }
inline int32_t least(Ints a) { return _mm512_reduce_min_epi32(a.v); }
inline int32_t largest(Ints a) { return _mm512_reduce_max_epi32(a.v); }
// Stores the lanes of these bits next to each other; writes 16 lanes, of which the rest is undefined.
inline void store_some(int32_t* p, Ints x, Bits lanes) {
  _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), x.v));
}
inline Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Ints round_to_ints(Floats a) { return {_mm512_cvtps_epi32(a.v)}; }
// The low byte of every lane.
inline void store_bytes(uint8_t* p, Ints x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v)); }

// Lanes from -32768 to 32767.
inline void store_shorts(int16_t* p, Ints x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x.v)); }

// Four unsigned bytes, the same in all lanes.
struct Packed4 {
  __m512i v;
};
inline Packed4 spread(uint32_t four) { return {_mm512_set1_epi32(static_cast<int32_t>(four))}; }

// Sixteen sums of products of four signed bytes from memory with four unsigned bytes.
struct Sums {
  __m512i v;
};
inline Sums no_sums() { return {_mm512_setzero_si512()}; }
// bytes: 16 groups of four signed bytes.
inline void add_products(Sums& sums, const int8_t* bytes, Packed4 four) {
  sums.v = _mm512_dpbusd_epi32(sums.v, four.v, _mm512_loadu_si512(bytes));
}
inline Sums operator+(Sums a, Sums b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints total(Sums sums) { return {sums.v}; }

// Blocks of sixteen outputs whose weights lie next to each other, and the sums that a product keeps in its 32 registers.
constexpr int kTileBlocks = 4;
constexpr int kSums = 24;

// The types that rows of bytes and weights are widened to: here they are not.
using RowByte = uint8_t;
using WideWeight = int8_t;

// Multiplies rows, `stride` from one to the next, with blocks of 16 outputs; weights: for every four inputs those of all
// blocks, `step` from one quad to the next. The loops must be unrolled to keep the sums in registers.
template <int Rows, int Blocks>
void multiply(const int8_t* weights, int64_t step, int64_t fours, const RowByte* rows, int64_t stride,
              int32_t (&totals)[Rows][Blocks][kLanes]) {
  // Bytes that weights are prefetched ahead, where whole tiles are read.
  constexpr int64_t kPrefetch = 2048, kBlockBytes = 4 * kLanes;
  Sums sums[Rows][Blocks];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int block = 0; block < Blocks; ++block) sums[r][block] = no_sums();
  for (int64_t i = 0; i < fours; ++i) {
    if constexpr (Blocks == kTileBlocks)
      for (int block = 0; block < Blocks; ++block) __builtin_prefetch(weights + kPrefetch + block * kBlockBytes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      uint32_t bytes;
      std::memcpy(&bytes, rows + r * stride + 4 * i, sizeof(bytes));
      const Packed4 four = spread(bytes);
#pragma GCC unroll 16
      for (int block = 0; block < Blocks; ++block) add_products(sums[r][block], weights + block * kBlockBytes, four);
    }
    weights += step;
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int block = 0; block < Blocks; ++block) _mm512_storeu_si512(totals[r][block], sums[r][block].v);
}

// Four signed bytes, the same in all lanes.
struct SignedPacked4 {
  __m512i v;
};
inline SignedPacked4 spread_signed(uint32_t four) { return {_mm512_set1_epi32(static_cast<int32_t>(four))}; }

// Blocks of codes whose sums are computed at once: as many as fit into the registers.
constexpr int kBlocksAtOnce = 4;

// Sixteen sums of products of few-bit codes from memory with signed bytes; sums of upper bits are scaled down at the end.
template <int Bits>
struct CodeSums {
  __m512i part[8 / Bits];
};
template <int Bits>
CodeSums<Bits> no_code_sums() {
  CodeSums<Bits> sums;
  for (auto& part : sums.part) part = _mm512_setzero_si512();
  return sums;
}
// bytes: 16 groups of four; fours: the factors of the codes in them, those of the lowest bits first.
template <int Bits>
void add_codes(CodeSums<Bits>& sums, const uint8_t* bytes, const SignedPacked4* fours) {
  const __m512i all = _mm512_loadu_si512(bytes);
#pragma GCC unroll 4
  for (int i = 0; i < 8 / Bits; ++i) {
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(((1 << Bits) - 1) << Bits * i));
    sums.part[i] = _mm512_dpbusd_epi32(sums.part[i], _mm512_and_si512(all, mask), fours[i].v);
  }
}
template <int Bits>
Ints total(CodeSums<Bits> sums) {
  __m512i all = sums.part[0];
#pragma GCC unroll 4
  for (int i = 1; i < 8 / Bits; ++i) all = _mm512_add_epi32(all, _mm512_srai_epi32(sums.part[i], Bits * i));
  return {all};
}

// The sums of products of blocks of codes, `spans` groups of 64 bytes each, with the quads of a query. Several blocks at once,
// so that a product need not wait for the one before it and each quad is loaded once. The loops must be unrolled to keep the
// sums in registers.
template <int Bits, int Count>
void sum_codes(const uint8_t* const (&bytes)[Count], int64_t spans, const uint32_t* quads, Ints (&totals)[Count]) {
  constexpr int kParts = 8 / Bits;
  __m512i sums[Count][kParts], masks[kParts];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    masks[i] = _mm512_set1_epi8(static_cast<char>(((1 << Bits) - 1) << Bits * i));
#pragma GCC unroll 4
    for (int b = 0; b < Count; ++b) sums[b][i] = _mm512_setzero_si512();
  }
  for (int64_t s = 0; s < spans; ++s, quads += kParts) {
    __m512i query[kParts];
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) query[i] = _mm512_set1_epi32(static_cast<int32_t>(quads[i]));
#pragma GCC unroll 4
    for (int b = 0; b < Count; ++b) {
      const __m512i all = _mm512_loadu_si512(bytes[b] + s * 4 * kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < kParts; ++i) sums[b][i] = _mm512_dpbusd_epi32(sums[b][i], _mm512_and_si512(all, masks[i]), query[i]);
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < Count; ++b) {
    __m512i all = sums[b][0];
#pragma GCC unroll 4
    for (int i = 1; i < kParts; ++i) all = _mm512_add_epi32(all, _mm512_srai_epi32(sums[b][i], Bits * i));
    totals[b].v = all;
  }
}

}  // namespace ibidem
