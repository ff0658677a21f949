// Keys as int8 codes in blocks of sixteen, and distances of a query to all keys of a block at once: for the centres of regions.
//
// A block is 16 norms (int32), and then for every four dimensions the codes of all 16 keys, [groups, 16 lanes, 4].
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "simd.h"

namespace ibidem {

constexpr int kGroup = 4;
constexpr int64_t kCacheLine = 64;
constexpr int kCodeZero = 128;
constexpr float kCodeSteps = 127.0f;
constexpr int64_t kNormBytes = kLanes * sizeof(int32_t);
// The norm of a place in a block where no key is. Distances of keys stay below kFarthest: 254 * 254 * 1024 < 2 ** 27.
constexpr int32_t kNoKey = 1 << 30;
constexpr int32_t kFarthest = 1 << 29;

// How numbers become codes: round((x - mean) * scale), from -127 to 127. One scale for all dimensions, so that distances
// of codes are distances of keys.
struct Coding {
  int64_t dimension;  // a multiple of four
  const float* mean;
  float scale;

  int64_t groups() const { return dimension / kGroup; }
  int64_t block_bytes() const { return kNormBytes + dimension * kLanes; }
};

// The codes of a vector, 128 added, up to whole registers; with the sum of the codes and of their squares. Both are
// sums of whole numbers below 2 ** 24, so floats hold them exactly.
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

  // Four codes, 128 added; zeros, as codes, behind the last.
  uint32_t four(int64_t group) const {
    uint32_t codes;
    std::memcpy(&codes, bytes.data() + group * kGroup, kGroup);
    return codes;
  }

  // Four codes as they are, signed.
  uint32_t signed_four(int64_t group) const { return four(group) ^ kSigns; }

  // Put it into a lane of a block, with its norm: with c the code and q that of a query, |c - q|^2 = norm + |q|^2
  // - 2 c . (q + 128) where norm = |c|^2 + 256 sum of c, and that product is of signed bytes with unsigned ones.
  void write(const Coding& coding, int8_t* block, int64_t lane) const {
    const int32_t norm = square + 2 * kCodeZero * sum;
    std::memcpy(block + lane * sizeof(norm), &norm, sizeof(norm));
    for (int64_t group = 0; group < coding.groups(); ++group) {
      const uint32_t codes = signed_four(group);
      std::memcpy(block + kNormBytes + (group * kLanes + lane) * kGroup, &codes, kGroup);
    }
  }
};

// Where bytes are asked to: those that are wanted soon into the first cache, others into the second, which holds more.
constexpr int kSoon = 3, kLater = 2;

// Ask for so many bytes ahead of their time. Inlined, or the compiler leaves out a call that does nothing but ask.
template <int When = kSoon>
__attribute__((always_inline)) inline void fetch(const void* bytes, int64_t count) {
  for (int64_t byte = 0; byte < count; byte += kCacheLine)
    __builtin_prefetch(static_cast<const char*>(bytes) + byte, 0, When);
}

// Call visit(block, distances) with those of a query to the keys of so many blocks, whose numbers which(i) gives. Groups:
// those of the dimension where they are known when compiling, so that the query stays in registers, else 0.
template <int Groups, class Which, class Visit>
void measure(const Coded& query, const Coding& coding, const int8_t* blocks, int64_t count, Which which, Visit visit) {
  constexpr int64_t kGroupBytes = kLanes * kGroup;
  const Ints square = splat(query.square);
  const int64_t groups = Groups > 0 ? Groups : coding.groups(), stride = kNormBytes + groups * kGroupBytes;
  Four spread_query[Groups > 0 ? Groups : 1];
  if constexpr (Groups > 0) {
#pragma GCC unroll 16
    for (int g = 0; g < Groups; ++g) spread_query[g] = spread(query.four(g));
  }
  // Blocks lie here and there, and the hardware cannot guess where the next one is.
  constexpr int64_t kAhead = 4;
  for (int64_t i = 0; i < std::min(kAhead, count); ++i) fetch(blocks + which(i) * stride, stride);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t block = which(i);
    const int8_t* bytes = blocks + block * stride;
    if (i + kAhead < count) fetch(blocks + which(i + kAhead) * stride, stride);
    // Two sums, since one would wait for its own last product.
    Sums sums[2] = {no_sums(), no_sums()};
    if constexpr (Groups > 0) {
#pragma GCC unroll 16
      for (int g = 0; g < Groups; ++g) add_products(sums[g % 2], bytes + kNormBytes + g * kGroupBytes, spread_query[g]);
    } else {
      for (int64_t g = 0; g < groups; ++g)
        add_products(sums[g % 2], bytes + kNormBytes + g * kGroupBytes, spread(query.four(g)));
    }
    const Ints products = total(sums[0] + sums[1]);
    visit(block, load(reinterpret_cast<const int32_t*>(bytes)) + square - products - products);
  }
}

}  // namespace ibidem
