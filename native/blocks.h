// Points that lie close together in blocks of sixteen, as what a point near them, their base, leaves of each, in few bits a
// dimension: that is enough to tell some that may be nearest from many, and what is read is little.
//
// With x a point in units of codes (codes.h), b its base and s a step of the point's own, the point is read as
// b + s (u - m), u from 0 to 2 m. Of a query's codes q, with r = s (u - m), |q - b - r|^2 = |q - b|^2 + norm +
// s (2 m sum of q - 2 q . u) where norm = |r|^2 + 2 b . r belongs to the point. So the distance of the base is all that must
// be known before, and points of a block may be bases in turn, as they are read: ivf.h.
//
// A block is 16 norms (half, in units that grow with the dimension: see norm_unit), 16 steps (half), and then spans of
// dimensions, [spans, 16 lanes, 4]: a byte has in its lowest bits one of the first four dimensions of the span, and so on.
// Dimensions behind the last are zeros of the query.
#pragma once

#include <immintrin.h>

#include <cmath>

#include "codes.h"
#include "sanitized.h"

namespace ibidem {

// Of the blocks of groups and of centroids, which many points depend on; and of those of keys and of their means.
constexpr int kCoarseBits = 4, kFineBits = 2;

constexpr int64_t kHeadBytes = 2 * kLanes * sizeof(uint16_t);
constexpr int64_t kSpanBytes = kLanes * kGroup;
// Where there is no point: a norm that stays infinite, whatever is added. It counts as this distance.
constexpr uint16_t kNothingHalf = 0x7c00;
constexpr float kNothingDistance = 1 << 30;
// More than this is not left of a point in a dimension, in units of codes, so that all norms fit into halves.
constexpr float kMostLeft = 96.0f;

// Dimensions of a span, and the largest number.
template <int Bits>
constexpr int kSpan = kGroup * 8 / Bits;
template <int Bits>
constexpr float kLargest = (1 << Bits) - 1;

template <int Bits>
int64_t spans(int64_t dimension) {
  return (dimension + kSpan<Bits> - 1) / kSpan<Bits>;
}
template <int Bits>
int64_t block_bytes(int64_t dimension) {
  return kHeadBytes + spans<Bits>(dimension) * kSpanBytes;
}
// A norm is below 43,000 in this unit: nothing is read as more than 187 away from its base, which is one of four at most.
inline float norm_unit(int64_t dimension) { return 8.0f * static_cast<float>(dimension + 12); }

inline uint16_t to_half(float x) { return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
inline float from_half(uint16_t x) { return _cvtsh_ss(x); }

// Numbers with which what is left of a point is read.
template <int Bits>
class Numbers {
 public:
  explicit Numbers(uint16_t step) : step_(from_half(step)), inverse_(step_ > 0 ? 1 / step_ : 0) {}
  float number(float left) const {
    return std::nearbyint(std::min(kLargest<Bits>, std::max(0.0f, left * inverse_ + kLargest<Bits> / 2)));
  }
  float read(float number) const { return step_ * (number - kLargest<Bits> / 2); }

 private:
  float step_, inverse_;
};

// The step with which the numbers come nearest to what is left of a point, as a half.
template <int Bits>
uint16_t fit_step(const float* left, int64_t dimension) {
  // In root mean squares of what is left, that of least error for a normal distribution; and parts of it.
  constexpr float kNormal = Bits == 2 ? 0.9957f : 0.335f;
  constexpr float kFactors[] = {0.75f, 0.85f, 0.93f, 1.0f, 1.08f, 1.18f, 1.3f};
  float square = 0;
  for (int64_t i = 0; i < dimension; ++i) square += left[i] * left[i];
  const float width = kNormal * std::sqrt(square / static_cast<float>(dimension));
  uint16_t best = 0;
  float least = square;
  for (const float factor : kFactors) {
    const uint16_t step = to_half(factor * width);
    const Numbers<Bits> numbers(step);
    float error = 0;
    for (int64_t i = 0; i < dimension; ++i) {
      const float away = left[i] - numbers.read(numbers.number(left[i]));
      error += away * away;
    }
    if (!(error < least)) continue;
    least = error;
    best = step;
  }
  return best;
}

// Where in a block the number of a dimension is.
template <int Bits>
struct Spot {
  Spot(int64_t dimension, int64_t lane)
      : byte(kHeadBytes + (dimension / kSpan<Bits> * kLanes + lane) * kGroup + dimension % kGroup),
        shift(dimension % kSpan<Bits> / kGroup * Bits) {}
  int64_t byte, shift;
};

// Put a point into a free lane of a block, and what it is read as in its place. nearer: the distance by which it is to seem
// nearer than it is.
template <int Bits>
void write_point(int64_t dimension, float* point, const float* base, float nearer, uint8_t* block, int64_t lane) {
  for (int64_t i = 0; i < dimension; ++i) point[i] = std::clamp(point[i] - base[i], -kMostLeft, kMostLeft);
  const uint16_t step = fit_step<Bits>(point, dimension);
  const Numbers<Bits> numbers(step);
  float norm = -nearer;
  for (int64_t i = 0; i < dimension; ++i) {
    const float number = numbers.number(point[i]), read = numbers.read(number);
    norm += read * (read + 2.0f * base[i]);
    point[i] = base[i] + read;
    const Spot<Bits> spot(i, lane);
    block[spot.byte] |= static_cast<uint8_t>(number) << spot.shift;
  }
  const uint16_t half = to_half(norm / norm_unit(dimension));
  std::memcpy(block + lane * sizeof(half), &half, sizeof(half));
  std::memcpy(block + (kLanes + lane) * sizeof(step), &step, sizeof(step));
}

// The point in a lane of a block; base: its base, and then the point.
template <int Bits>
void read_point(int64_t dimension, const uint8_t* block, int64_t lane, float* base) {
  uint16_t step;
  std::memcpy(&step, block + (kLanes + lane) * sizeof(step), sizeof(step));
  const Numbers<Bits> numbers(step);
  for (int64_t i = 0; i < dimension; ++i) {
    const Spot<Bits> spot(i, lane);
    base[i] += numbers.read(static_cast<float>(block[spot.byte] >> spot.shift & ((1 << Bits) - 1)));
  }
}

// A block without points.
template <int Bits>
void clear_block(int64_t dimension, uint8_t* block) {
  std::fill_n(block, block_bytes<Bits>(dimension), 0);
  for (int64_t lane = 0; lane < kLanes; ++lane)
    std::memcpy(block + lane * sizeof(kNothingHalf), &kNothingHalf, sizeof(kNothingHalf));
}

// Blocks to be read, and how far the base of each is. They are put in without a branch on how many there are, which nobody
// can predict.
class Stops {
 public:
  void clear(size_t most) {
    count_ = 0;
    if (blocks_.size() >= most + kLanes && !kSanitized) return;
    blocks_.resize(most + kLanes);
    distances_.resize(most + kLanes);
  }
  void add(int32_t block, int32_t distance) {
    blocks_[count_] = block;
    distances_[count_++] = distance;
  }
  // The lanes of these bits.
  void add(Ints blocks, Ints distances, Bits lanes) {
    store_some(blocks_.data() + count_, blocks, lanes);
    store_some(distances_.data() + count_, distances, lanes);
    count_ += __builtin_popcount(lanes);
  }
  size_t count() const { return count_; }
  int64_t block(size_t i) const { return blocks_[i]; }
  float distance(size_t i) const { return static_cast<float>(distances_[i]); }

 private:
  std::vector<int32_t> blocks_, distances_;
  size_t count_ = 0;
};

// A query ready to be measured against blocks. Dimension: where it is known when compiling, so that the query stays in
// registers, else 0.
template <int Dimension>
class BlockQuery {
 public:
  void set(const Coded& query, const Coding& coding) {
    dimension_ = coding.dimension;
    unit_ = norm_unit(coding.dimension);
    sum_ = static_cast<float>(query.sum);
    fours_.assign(coding.groups() + kMostFours, 0);
    for (int64_t group = 0; group < coding.groups(); ++group) fours_[group] = query.signed_four(group);
  }

  // Call visit(i, distances) for every stop.
  template <int Bits, class Visit>
  void measure(const uint8_t* blocks, const Stops& stops, Visit visit) const {
    constexpr int kFours = 8 / Bits, kSpans = Dimension / kSpan<Bits>;
    const int64_t count = Dimension > 0 ? kSpans : spans<Bits>(dimension_), stride = kHeadBytes + count * kSpanBytes;
    SignedFour query[kFours * std::max(1, kSpans)];
    if constexpr (Dimension > 0) {
#pragma GCC unroll 16
      for (int g = 0; g < kFours * kSpans; ++g) query[g] = spread_signed(fours_[g]);
    }
    // Blocks lie here and there, and the hardware cannot guess where the next one is.
    for (size_t i = 0; i < std::min(kAhead, stops.count()); ++i) fetch(blocks + stops.block(i) * stride, stride);
    for (size_t i = 0; i < stops.count(); ++i) {
      if (i + kAhead < stops.count()) fetch(blocks + stops.block(i + kAhead) * stride, stride);
      const uint8_t* bytes = blocks + stops.block(i) * stride;
      NumberSums<Bits> sums = no_number_sums<Bits>();
      if constexpr (Dimension > 0) {
#pragma GCC unroll 16
        for (int s = 0; s < kSpans; ++s) add_numbers<Bits>(sums, bytes + kHeadBytes + s * kSpanBytes, query + kFours * s);
      } else {
        for (int64_t s = 0; s < count; ++s) {
          for (int g = 0; g < kFours; ++g) query[g] = spread_signed(fours_[kFours * s + g]);
          add_numbers<Bits>(sums, bytes + kHeadBytes + s * kSpanBytes, query);
        }
      }
      const auto* head = reinterpret_cast<const uint16_t*>(bytes);
      const Floats bases = fma(load_half(head), splat(unit_), splat(stops.distance(i)));
      const Floats products = fma(splat(-2.0f), to_floats(total<Bits>(sums)), splat(kLargest<Bits> * sum_));
      const Floats distances = fma(load_half(head + kLanes), products, bases);
      visit(i, round_to_ints(min(splat(kNothingDistance), distances)));
    }
  }

 private:
  static constexpr size_t kAhead = 4;
  static constexpr int64_t kMostFours = 8 / kFineBits;

  std::vector<uint32_t> fours_;
  int64_t dimension_ = 0;
  float sum_ = 0, unit_ = 0;
};

}  // namespace ibidem
