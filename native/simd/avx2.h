// The 16 lanes as two AVX2 registers; missing instructions are emulated.
#pragma once

#include <immintrin.h>

#include <cstring>

namespace ibidem {

constexpr const char* kInstructions = "avx2";

struct Floats {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};

inline Floats splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Floats load_half(const uint16_t* p) {
  auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
// Loads 16 signed bytes as numbers.
inline Floats load_bytes(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline void store(float* p, Floats x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
// All bits set in the lanes below count, zero in the others.
inline __m256i mask_of_first(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Floats load_first(const float* p, int count) {
  return {_mm256_maskload_ps(p, mask_of_first(count)), _mm256_maskload_ps(p + 8, mask_of_first(count - 8))};
}
// Sets the lanes from count on to zero.
inline Floats keep_first(Floats x, int count) {
  return {_mm256_and_ps(x.low, _mm256_castsi256_ps(mask_of_first(count))),
          _mm256_and_ps(x.high, _mm256_castsi256_ps(mask_of_first(count - 8)))};
}
inline void store_first(float* p, Floats x, int count) {
  _mm256_maskstore_ps(p, mask_of_first(count), x.low);
  _mm256_maskstore_ps(p + 8, mask_of_first(count - 8), x.high);
}

inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
// a * b + c, rounded once.
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
// The result is NaN where b is NaN, and b where only a is NaN.
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Floats abs(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline Floats nearest(Floats a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kMode), _mm256_round_ps(a.high, kMode)};
}
// x * 2 ** n for whole n, clamped to -126 .. 127 unless it is NaN.
inline __m256 scale_by_power(__m256 x, __m256 n) {
  const __m256 kept = _mm256_min_ps(_mm256_set1_ps(127.0f), _mm256_max_ps(_mm256_set1_ps(-126.0f), n));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(kept), _mm256_set1_epi32(127));
  return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
inline Floats scale_by_power(Floats x, Floats n) { return {scale_by_power(x.low, n.low), scale_by_power(x.high, n.high)}; }
inline Bits at_least(Floats a, Floats b) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ));
  return static_cast<Bits>(low | high << 8);
}
inline float sum(Floats a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline float largest(Floats a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

inline Ints splat(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
// The number of each lane.
inline Ints counting() { return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)}; }
inline Ints load(const int32_t* p) {
  auto* eights = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(eights), _mm256_loadu_si256(eights + 1)};
}
inline void store(int32_t* p, Ints x) {
  auto* eights = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(eights, x.low);
  _mm256_storeu_si256(eights + 1, x.high);
}
inline Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
inline Ints operator*(Ints a, Ints b) { return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)}; }
inline Ints min(Ints a, Ints b) { return {_mm256_min_epi32(a.low, b.low), _mm256_min_epi32(a.high, b.high)}; }
inline Ints max(Ints a, Ints b) { return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)}; }
// Adds the products of 16 pairs of int16 from memory with one pair.
inline Ints add_pairs(Ints sums, const int16_t* numbers, Ints pair) {
  auto* pairs = reinterpret_cast<const __m256i*>(numbers);
  return {_mm256_add_epi32(sums.low, _mm256_madd_epi16(_mm256_loadu_si256(pairs), pair.low)),
          _mm256_add_epi32(sums.high, _mm256_madd_epi16(_mm256_loadu_si256(pairs + 1), pair.high))};
}
inline Bits below(Ints a, Ints b) {
  const int low = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.low, a.low)));
  const int high = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.high, a.high)));
  return static_cast<Bits>(low | high << 8);
}
inline Bits equal(Ints a, Ints b) {
  const int low = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.low, b.low)));
  const int high = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.high, b.high)));
  return static_cast<Bits>(low | high << 8);
}
// Increments counts in the lanes where a < b.
inline Ints count_below(Ints counts, Ints a, Ints b) {
  return {_mm256_sub_epi32(counts.low, _mm256_cmpgt_epi32(b.low, a.low)),
          _mm256_sub_epi32(counts.high, _mm256_cmpgt_epi32(b.high, a.high))};
}
inline int32_t sum(Ints a) {
  const __m256i eight = _mm256_add_epi32(a.low, a.high);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline int32_t least(Ints a) {
  const __m256i eight = _mm256_min_epi32(a.low, a.high);
  __m128i four = _mm_min_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_min_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_min_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline int32_t largest(Ints a) {
  const __m256i eight = _mm256_max_epi32(a.low, a.high);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
// For every byte the indices of its set bits; the rest is undefined.
struct Places {
  int32_t of[256][8];
  constexpr Places() : of() {
    for (int bits = 0; bits < 256; ++bits)
      for (int lane = 0, place = 0; lane < 8; ++lane)
        if (bits >> lane & 1) of[bits][place++] = lane;
  }
};
alignas(32) inline constexpr Places kPlaces;
inline void store_some(int32_t* p, __m256i x, Bits lanes) {
  const __m256i places = _mm256_load_si256(reinterpret_cast<const __m256i*>(kPlaces.of[lanes]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(x, places));
}
// Stores the lanes of these bits next to each other; writes up to 16 lanes, of which the rest is undefined.
inline void store_some(int32_t* p, Ints x, Bits lanes) {
  store_some(p, x.low, lanes & 0xff);
  store_some(p + __builtin_popcount(lanes & 0xff), x.high, lanes >> 8);
}
inline Floats to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
inline Ints round_to_ints(Floats a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
// Lanes from 0 to 255, as bytes or widened.
inline __m256i to_words(Ints x) { return _mm256_permute4x64_epi64(_mm256_packus_epi32(x.low, x.high), 0xd8); }
inline void store_bytes(uint16_t* p, Ints x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_words(x)); }
inline void store_bytes(uint8_t* p, Ints x) {
  const __m256i words = to_words(x);
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
// Lanes from -32768 to 32767.
inline void store_shorts(int16_t* p, Ints x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}

// Four unsigned bytes, the same in all lanes, widened to int16.
struct Packed4 {
  __m256i v;
};
inline Packed4 spread(uint32_t four) { return {_mm256_cvtepu8_epi16(_mm_set1_epi32(static_cast<int32_t>(four)))}; }

// Sixteen sums of products of four signed bytes from memory with four unsigned bytes. AVX2 multiplies bytes only with
// saturation, so they are widened: a lane of a part holds two of the four products of one sum.
struct Sums {
  __m256i part[4];
};
inline Sums no_sums() {
  const __m256i zero = _mm256_setzero_si256();
  return {{zero, zero, zero, zero}};
}
// bytes: 16 groups of four signed bytes.
inline void add_products(Sums& sums, const int8_t* bytes, Packed4 four) {
  auto* groups = reinterpret_cast<const __m128i*>(bytes);
  for (int i = 0; i < 4; ++i) {
    const __m256i signed_ones = _mm256_cvtepi8_epi16(_mm_loadu_si128(groups + i));
    sums.part[i] = _mm256_add_epi32(sums.part[i], _mm256_madd_epi16(signed_ones, four.v));
  }
}
inline Sums operator+(Sums a, Sums b) {
  for (int i = 0; i < 4; ++i) a.part[i] = _mm256_add_epi32(a.part[i], b.part[i]);
  return a;
}
inline __m256i total(__m256i part, __m256i next) {
  // hadd leaves the sums of two parts in the order 0 1 4 5 2 3 6 7.
  return _mm256_permute4x64_epi64(_mm256_hadd_epi32(part, next), 0xd8);
}
inline Ints total(Sums sums) { return {total(sums.part[0], sums.part[1]), total(sums.part[2], sums.part[3])}; }

// Blocks of sixteen outputs whose weights lie next to each other, and the sums that a product keeps in its 16 registers.
constexpr int kTileBlocks = 1;
constexpr int kSums = 4;

// The types that are widened once for many products: rows when they are quantised, weights where there are many rows.
using RowByte = uint16_t;
using WideWeight = int16_t;
inline __m256i load_weights(const int8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m256i load_weights(const WideWeight* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// Multiplies rows, `stride` from one to the next, with blocks of 16 outputs; weights: for every four inputs those of all
// blocks, `step` from one quad to the next.
template <int Rows, int Blocks, class Weight>
void multiply(const Weight* weights, int64_t step, int64_t fours, const RowByte* rows, int64_t stride,
              int32_t (&totals)[Rows][Blocks][kLanes]) {
  // Groups of four outputs: as many as fit into the 16 registers with the rows' bytes, a weight and a product.
  constexpr int kParts = Rows == 1 ? 4 * Blocks : Rows == 2 ? 4 : 2;
#pragma GCC unroll 8
  for (int first = 0; first < 4 * Blocks; first += kParts) {
    __m256i sums[Rows][kParts];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int part = 0; part < kParts; ++part) sums[r][part] = _mm256_setzero_si256();
    for (int64_t i = 0; i < fours; ++i) {
      __m256i bytes[Rows];
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        int64_t four;
        std::memcpy(&four, rows + r * stride + 4 * i, sizeof(four));
        bytes[r] = _mm256_set1_epi64x(four);
      }
#pragma GCC unroll 16
      for (int part = 0; part < kParts; ++part) {
        const __m256i wide = load_weights(weights + i * step + (first + part) * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) sums[r][part] = _mm256_add_epi32(sums[r][part], _mm256_madd_epi16(wide, bytes[r]));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int part = 0; part < kParts; part += 2)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(&totals[r][0][0] + 4 * (first + part)),
                            total(sums[r][part], sums[r][part + 1]));
  }
}

// Four signed bytes, the same in all lanes.
struct SignedPacked4 {
  __m256i v;
};
inline SignedPacked4 spread_signed(uint32_t four) { return {_mm256_set1_epi32(static_cast<int32_t>(four))}; }

// Blocks of codes whose sums are computed at once: as many as fit into the registers.
constexpr int kBlocksAtOnce = 2;

// Sixteen sums of products of few-bit codes from memory with signed bytes.
template <int Bits>
struct CodeSums {
  __m256i part[2];
};
template <int Bits>
CodeSums<Bits> no_code_sums() {
  return {{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}
// bytes: 16 groups of four; fours: the factors of the codes in them, those of the lowest bits first. Four products of 15, or
// eight of 3, with at most 128 fit into int16.
template <int Bits>
void add_codes(CodeSums<Bits>& sums, const uint8_t* bytes, const SignedPacked4* fours) {
  static_assert(Bits == 2 || Bits == 4, "others may not fit");
  auto* groups = reinterpret_cast<const __m256i*>(bytes);
  for (int half = 0; half < 2; ++half) {
    const __m256i all = _mm256_loadu_si256(groups + half);
    __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 8 / Bits; ++i) {
      const __m256i numbers = _mm256_and_si256(_mm256_srli_epi16(all, Bits * i), _mm256_set1_epi8((1 << Bits) - 1));
      pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(numbers, fours[i].v));
    }
    sums.part[half] = _mm256_add_epi32(sums.part[half], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
}
template <int Bits>
Ints total(CodeSums<Bits> sums) {
  return {sums.part[0], sums.part[1]};
}

// The sums of products of blocks of codes, `spans` groups of 64 bytes each, with the quads of a query. Several blocks at once,
// so that each quad is loaded once. The loops must be unrolled to keep the sums in registers.
template <int Bits, int Count>
void sum_codes(const uint8_t* const (&bytes)[Count], int64_t spans, const uint32_t* quads, Ints (&totals)[Count]) {
  constexpr int kParts = 8 / Bits;
  const __m256i mask = _mm256_set1_epi8((1 << Bits) - 1), ones = _mm256_set1_epi16(1);
  __m256i sums[2 * Count];
#pragma GCC unroll 4
  for (int b = 0; b < 2 * Count; ++b) sums[b] = _mm256_setzero_si256();
  for (int64_t s = 0; s < spans; ++s, quads += kParts) {
    __m256i query[kParts];
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) query[i] = _mm256_set1_epi32(static_cast<int32_t>(quads[i]));
#pragma GCC unroll 4
    for (int b = 0; b < 2 * Count; ++b) {
      const auto* half = reinterpret_cast<const __m256i*>(bytes[b / 2] + s * 4 * kLanes) + b % 2;
      const __m256i all = _mm256_loadu_si256(half);
      __m256i pairs = _mm256_maddubs_epi16(_mm256_and_si256(all, mask), query[0]);
#pragma GCC unroll 4
      for (int i = 1; i < kParts; ++i) {
        const __m256i codes = _mm256_and_si256(_mm256_srli_epi16(all, Bits * i), mask);
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes, query[i]));
      }
      sums[b] = _mm256_add_epi32(sums[b], _mm256_madd_epi16(pairs, ones));
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < Count; ++b) totals[b] = {sums[2 * b], sums[2 * b + 1]};
}

}  // namespace ibidem
