// Vectors as int8 codes in blocks of 16, and the distances of a query to all vectors of a block; used for centres of regions.
//
// A block holds 16 norms (int32), and then for each quad of four dimensions the codes of all 16 vectors, [quads, 16, 4].
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "simd/simd.h"

namespace ibidem {

constexpr int kQuad = 4;
constexpr int64_t kCacheLine = 64;
constexpr int kCodeZero = 128;
constexpr float kCodeSteps = 127.0f;
constexpr int64_t kNormBytes = kLanes * sizeof(int32_t);
// The norm of an empty place. Distances of vectors stay below kFarthest: 254 * 254 * 1024 < 2 ** 27.
constexpr int32_t kNoKey = 1 << 30;
constexpr int32_t kFarthest = 1 << 29;

// The code of a number: round((x - mean) * scale), from -127 to 127. All dimensions have one scale, so that distances of codes
// are proportional to distances of vectors.
struct Coding {
  int64_t dimension;  // a multiple of four
  const float* mean;
  float scale;

  int64_t quads() const { return dimension / kQuad; }
  int64_t block_bytes() const { return kNormBytes + dimension * kLanes; }
};

// The codes of a vector plus 128, padded to whole registers, with the sums of the codes and of their squares. Both sums are
// integers below 2 ** 24, which float32 holds exactly.
struct Coded {
  static constexpr uint32_t kSigns = 0x80808080u;

  std::vector<uint8_t> bytes;
  int32_t sum, square;

  void set(const Coding& coding, const float* x) {
    bytes.resize((coding.dimension + kLanes - 1) / kLanes * kLanes);
    Floats sums = splat(0.0f), squares = splat(0.0f);
    for (int64_t i = 0; i < coding.dimension; i += kLanes) {
      const int count = static_cast<int>(std::min<int64_t>(kLanes, coding.dimension - i));
      const Floats steps = (load_first(x + i, count) - load_first(coding.mean + i, count)) * splat(coding.scale);
      const Floats code = nearest(min(splat(kCodeSteps), max(splat(-kCodeSteps), steps)));
      sums = sums + code;
      squares = fma(code, code, squares);
      store_bytes(bytes.data() + i, round_to_ints(code) + splat(kCodeZero));
    }
    sum = static_cast<int32_t>(ibidem::sum(sums));
    square = static_cast<int32_t>(ibidem::sum(squares));
  }

  // The codes of a quad, plus 128; the padding is zero as codes.
  uint32_t quad(int64_t number) const {
    uint32_t codes;
    std::memcpy(&codes, bytes.data() + number * kQuad, kQuad);
    return codes;
  }

  // The signed codes of a quad.
  uint32_t signed_quad(int64_t number) const { return quad(number) ^ kSigns; }

  // Writes the codes into a lane of a block, with their norm. With c these codes and q those of a query,
  // |c - q|^2 = norm + |q|^2 - 2 c . (q + 128) where norm = |c|^2 + 256 sum(c): a product of signed and unsigned bytes.
  void write(const Coding& coding, int8_t* block, int64_t lane) const {
    const int32_t norm = square + 2 * kCodeZero * sum;
    std::memcpy(block + lane * sizeof(norm), &norm, sizeof(norm));
    for (int64_t number = 0; number < coding.quads(); ++number) {
      const uint32_t codes = signed_quad(number);
      std::memcpy(block + kNormBytes + (number * kLanes + lane) * kQuad, &codes, kQuad);
    }
  }
};

// Prefetch into the first-level cache for bytes that are read soon, else into the second, which holds more.
constexpr int kSoon = 3, kLater = 2;

// Prefetches bytes. Always inlined: a compiler may drop a call whose only effect is prefetching.
template <int When = kSoon>
__attribute__((always_inline)) inline void fetch(const void* bytes, int64_t count) {
  for (int64_t byte = 0; byte < count; byte += kCacheLine) __builtin_prefetch(static_cast<const char*>(bytes) + byte, 0, When);
}

// Calls visit(block, distances) with the distances of a query to the vectors of each block. Quads: those of the dimension
// where they are known at compile time, so that the query stays in registers, else 0.
template <int Quads, class Visit>
void measure(const Coded& query, const Coding& coding, const int8_t* blocks, int64_t count, Visit visit) {
  constexpr int64_t kQuadBytes = kLanes * kQuad;
  const Ints square = splat(query.square);
  const int64_t quads = Quads > 0 ? Quads : coding.quads(), stride = kNormBytes + quads * kQuadBytes;
  Packed4 spread_query[Quads > 0 ? Quads : 1];
  if constexpr (Quads > 0) {
#pragma GCC unroll 32
    for (int q = 0; q < Quads; ++q) spread_query[q] = spread(query.quad(q));
  }
  constexpr int64_t kAhead = 4;
  fetch(blocks, std::min(kAhead, count) * stride);
  for (int64_t block = 0; block < count; ++block) {
    const int8_t* bytes = blocks + block * stride;
    if (block + kAhead < count) fetch(bytes + kAhead * stride, stride);
    // Two sums, so that a product need not wait for the one before it.
    Sums sums[2] = {no_sums(), no_sums()};
    if constexpr (Quads > 0) {
#pragma GCC unroll 32
      for (int q = 0; q < Quads; ++q) add_products(sums[q % 2], bytes + kNormBytes + q * kQuadBytes, spread_query[q]);
    } else {
      for (int64_t q = 0; q < quads; ++q) add_products(sums[q % 2], bytes + kNormBytes + q * kQuadBytes, spread(query.quad(q)));
    }
    const Ints products = total(sums[0] + sums[1]);
    visit(block, load(reinterpret_cast<const int32_t*>(bytes)) + square - products - products);
  }
}

}  // namespace ibidem
