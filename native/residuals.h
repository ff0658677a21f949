// Keys as what their centroid leaves of them, in four bits a dimension: half the bytes of int8, and as good an order,
// since what is left is small and every list has steps of its own size.
//
// With x a key in units of codes (codes.h), c the codes of its centroid and s the step of its list, the key is read as
// c + s (u - 7.5), u from 0 to 15. Of a query's codes q, with r = s (u - 7.5), |q - c - r|^2 = |q - c|^2 + norm - 2 q . r
// where norm = |r|^2 + 2 c . r belongs to the key, and q . r = s (q . u) - 7.5 s (sum of q).
//
// A block is 16 norms (float), and then for every eight dimensions the numbers of all 16 keys, [eights, 16 lanes, 4]: a
// byte has in its low half one of the first four dimensions, in its high half one of the others. Dimensions behind the
// last are zeros of the query.
#pragma once

#include <cmath>

#include "codes.h"

namespace ibidem {

constexpr int kEight = 8;
constexpr float kSteps = 15.0f, kMiddle = kSteps / 2;
// The norm of a place where no key is: above kFarthest, whatever is added. The other terms stay below 2 ** 27.
constexpr float kNoKeyNorm = 1 << 30;

inline int64_t residual_eights(int64_t dimension) { return (dimension + kEight - 1) / kEight; }
inline int64_t residual_block_bytes(int64_t dimension) {
  return kNormBytes + residual_eights(dimension) * kLanes * kGroup;
}

// The codes of the centroid in a lane of a block of codes.h.
inline void read_codes(const Coding& coding, const int8_t* block, int64_t lane, int8_t* codes) {
  for (int64_t group = 0; group < coding.groups(); ++group)
    std::memcpy(codes + group * kGroup, block + kNormBytes + (group * kLanes + lane) * kGroup, kGroup);
}

// Put a key into a lane of a block.
inline void write_residual(const Coding& coding, const float* key, const int8_t* centroid, float step, uint8_t* block,
                           int64_t lane) {
  const float inverse = step > 0 ? 1 / step : 0;
  float norm = 0;
  for (int64_t i = 0; i < coding.dimension; ++i) {
    const float left = (key[i] - coding.mean[i]) * coding.scale - centroid[i];
    const float number = std::nearbyint(std::min(kSteps, std::max(0.0f, left * inverse + kMiddle)));
    const float read = step * (number - kMiddle);
    norm += read * (read + 2.0f * centroid[i]);
    uint8_t& byte = block[kNormBytes + (i / kEight * kLanes + lane) * kGroup + i % kGroup];
    byte |= static_cast<uint8_t>(number) << (i % kEight / kGroup * 4);
  }
  std::memcpy(block + lane * sizeof(norm), &norm, sizeof(norm));
}

// Blocks to be measured, and what the distances in the list of each have in common: distance = constant + norm + factor *
// q . u. They are put in without a branch on how many there are, which nobody can predict.
class Stops {
 public:
  void clear(size_t most) {
    count_ = 0;
    if (blocks_.size() >= most + kLanes) return;
    blocks_.resize(most + kLanes);
    constants_.resize(most + kLanes);
    factors_.resize(most + kLanes);
  }
  // The lanes of these bits.
  void add(Ints blocks, Bits lanes, float constant, float factor) {
    store_some(blocks_.data() + count_, blocks, lanes);
    store(constants_.data() + count_, splat(constant));
    store(factors_.data() + count_, splat(factor));
    count_ += __builtin_popcount(lanes);
  }
  size_t count() const { return count_; }
  int64_t block(size_t i) const { return blocks_[i]; }
  float constant(size_t i) const { return constants_[i]; }
  float factor(size_t i) const { return factors_[i]; }

 private:
  std::vector<int32_t> blocks_;
  std::vector<float> constants_, factors_;
  size_t count_ = 0;
};

// A query ready to be measured against blocks. Eights: those of its dimension where they are known when compiling, so that
// the query stays in registers, else 0.
template <int Eights>
class ResidualQuery {
 public:
  void set(const Coded& query, const Coding& coding) {
    eights_ = residual_eights(coding.dimension);
    sum_ = static_cast<float>(query.sum);
    fours_.assign(2 * eights_, 0);
    for (int64_t group = 0; group < coding.groups(); ++group) fours_[group] = query.signed_four(group);
  }

  // What the distances in a list, whose centroid is so far away, have in common.
  float constant(int32_t distance, float step) const { return static_cast<float>(distance) + kSteps * step * sum_; }
  float factor(float step) const { return -2 * step; }

  // Call visit(i, distances) for every stop.
  template <class Visit>
  void measure(const uint8_t* blocks, const Stops& stops, Visit visit) const {
    constexpr int64_t kEightBytes = kLanes * kGroup;
    const int64_t eights = Eights > 0 ? Eights : eights_, stride = kNormBytes + eights * kEightBytes;
    SignedFour query[Eights > 0 ? 2 * Eights : 1];
    if constexpr (Eights > 0) {
#pragma GCC unroll 16
      for (int g = 0; g < 2 * Eights; ++g) query[g] = spread_signed(fours_[g]);
    }
    // Blocks lie here and there, and the hardware cannot guess where the next one is.
    for (size_t i = 0; i < std::min(kAhead, stops.count()); ++i) fetch(blocks + stops.block(i) * stride, stride);
    for (size_t i = 0; i < stops.count(); ++i) {
      if (i + kAhead < stops.count()) fetch(blocks + stops.block(i + kAhead) * stride, stride);
      const uint8_t* bytes = blocks + stops.block(i) * stride;
      // Some sums, since one would wait for its own last product.
      HalfByteSums sums[2] = {no_half_byte_sums(), no_half_byte_sums()};
      if constexpr (Eights > 0) {
#pragma GCC unroll 16
        for (int e = 0; e < Eights; ++e) {
          const int64_t byte = kNormBytes + e * kEightBytes;
          add_half_bytes(sums[e % 2], bytes + byte, query[2 * e], query[2 * e + 1]);
        }
      } else {
        for (int64_t e = 0; e < eights; ++e) {
          const int64_t byte = kNormBytes + e * kEightBytes;
          add_half_bytes(sums[e % 2], bytes + byte, spread_signed(fours_[2 * e]), spread_signed(fours_[2 * e + 1]));
        }
      }
      const Floats norms = load(reinterpret_cast<const float*>(bytes)) + splat(stops.constant(i));
      const Floats products = to_floats(total(sums[0] + sums[1]));
      visit(i, round_to_ints(fma(splat(stops.factor(i)), products, norms)));
    }
  }

 private:
  static constexpr size_t kAhead = 4;

  std::vector<uint32_t> fours_;
  int64_t eights_ = 0;
  float sum_ = 0;
};

}  // namespace ibidem
