// Points in blocks of 16, coded as residuals of a base point near them with few bits a dimension. The codes select the few
// points that may be nearest, and little memory is read for that.
//
// With x a point in units of codes (codes.h), b its base and s a step of the point's own, the point is decoded as
// b + s (u - m), u from 0 to 2 m. For a query's codes q and r = s (u - m), |q - b - r|^2 = |q - b|^2 + norm +
// s (2 m sum(q) - 2 q . u) where norm = |r|^2 + 2 b . r belongs to the point. So a block can be measured once the distance of
// its base is known, and decoded points of a block may be bases of other blocks (ivf.h).
//
// A block holds 16 norms (float16, see norm_unit), 16 steps (float16), and then spans of dimensions, [spans, 16 lanes, 4]: the
// lowest bits of a byte hold one of the first four dimensions of the span, and so on. The query is zero beyond the last
// dimension.
#pragma once

#include <immintrin.h>

#include <cmath>

#include "base/sanitized.h"
#include "index/codes.h"

namespace ibidem {

// Bits of a dimension for groups and centroids, which many points depend on, and for keys and means of keys.
constexpr int kCoarseBits = 4, kFineBits = 2;

constexpr int64_t kHeadBytes = 2 * kLanes * sizeof(uint16_t);
constexpr int64_t kSpanBytes = kLanes * kQuad;
// The norm of an empty lane, which stays infinite whatever is added, and the distance that it counts as.
constexpr uint16_t kEmptyNorm = 0x7c00;
constexpr float kEmptyDistance = 1 << 30;
// Residuals are clamped to this, in units of codes, so that all norms fit into float16.
constexpr float kMostResidual = 96.0f;

// The dimensions of a span, and the largest code.
template <int Bits>
constexpr int kSpan = kQuad * 8 / Bits;
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
// The unit of stored norms. In it a norm is below 43,000: no decoded residual exceeds 187 in a dimension, and bases nest at
// most four deep.
inline float norm_unit(int64_t dimension) { return 8.0f * static_cast<float>(dimension + 12); }

inline uint16_t to_half(float x) { return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
inline float from_half(uint16_t x) { return _cvtsh_ss(x); }

// Codes and decodes residuals with a given step.
template <int Bits>
class ResidualCode {
 public:
  explicit ResidualCode(uint16_t step) : step_(from_half(step)), inverse_(step_ > 0 ? 1 / step_ : 0) {}
  float encode(float residual) const {
    return std::nearbyint(std::min(kLargest<Bits>, std::max(0.0f, residual * inverse_ + kLargest<Bits> / 2)));
  }
  float decode(float code) const { return step_ * (code - kLargest<Bits> / 2); }

 private:
  float step_, inverse_;
};

// The step, as float16, whose codes have the least squared error for the residuals of a point.
template <int Bits>
uint16_t fit_step(const float* residuals, int64_t dimension) {
  // The best step for a normal distribution, in root mean squares of the residuals, and factors of it that are tried.
  constexpr float kNormal = Bits == 2 ? 0.9957f : 0.335f;
  constexpr float kFactors[] = {0.75f, 0.85f, 0.93f, 1.0f, 1.08f, 1.18f, 1.3f};
  float square = 0;
  for (int64_t i = 0; i < dimension; ++i) square += residuals[i] * residuals[i];
  const float width = kNormal * std::sqrt(square / static_cast<float>(dimension));
  uint16_t best = 0;
  float least = square;
  for (const float factor : kFactors) {
    const uint16_t step = to_half(factor * width);
    const ResidualCode<Bits> residual_code(step);
    float error = 0;
    for (int64_t i = 0; i < dimension; ++i) {
      const float missed = residuals[i] - residual_code.decode(residual_code.encode(residuals[i]));
      error += missed * missed;
    }
    if (!(error < least)) continue;
    least = error;
    best = step;
  }
  return best;
}

// The position of a dimension's code in a block.
template <int Bits>
struct CodePosition {
  CodePosition(int64_t dimension, int64_t lane)
      : byte(kHeadBytes + (dimension / kSpan<Bits> * kLanes + lane) * kQuad + dimension % kQuad),
        shift(dimension % kSpan<Bits> / kQuad * Bits) {}
  int64_t byte, shift;
};

// Writes a point into an empty lane of a block, and replaces the point by its decoded form. nearer: how much the measured
// distance is to be lowered.
template <int Bits>
void write_point(int64_t dimension, float* point, const float* base, float nearer, uint8_t* block, int64_t lane) {
  for (int64_t i = 0; i < dimension; ++i) point[i] = std::clamp(point[i] - base[i], -kMostResidual, kMostResidual);
  const uint16_t step = fit_step<Bits>(point, dimension);
  const ResidualCode<Bits> residual_code(step);
  float norm = -nearer;
  for (int64_t i = 0; i < dimension; ++i) {
    const float code = residual_code.encode(point[i]), decoded = residual_code.decode(code);
    norm += decoded * (decoded + 2.0f * base[i]);
    point[i] = base[i] + decoded;
    const CodePosition<Bits> position(i, lane);
    block[position.byte] |= static_cast<uint8_t>(code) << position.shift;
  }
  const uint16_t half = to_half(norm / norm_unit(dimension));
  std::memcpy(block + lane * sizeof(half), &half, sizeof(half));
  std::memcpy(block + (kLanes + lane) * sizeof(step), &step, sizeof(step));
}

// Decodes the point in a lane of a block; base: its base, which the point replaces.
template <int Bits>
void read_point(int64_t dimension, const uint8_t* block, int64_t lane, float* base) {
  uint16_t step;
  std::memcpy(&step, block + (kLanes + lane) * sizeof(step), sizeof(step));
  const ResidualCode<Bits> residual_code(step);
  for (int64_t i = 0; i < dimension; ++i) {
    const CodePosition<Bits> position(i, lane);
    base[i] += residual_code.decode(static_cast<float>(block[position.byte] >> position.shift & ((1 << Bits) - 1)));
  }
}

// Empties a block.
template <int Bits>
void clear_block(int64_t dimension, uint8_t* block) {
  std::fill_n(block, block_bytes<Bits>(dimension), 0);
  for (int64_t lane = 0; lane < kLanes; ++lane) std::memcpy(block + lane * sizeof(kEmptyNorm), &kEmptyNorm, sizeof(kEmptyNorm));
}

// Blocks to be measured, with the distance of each one's base. Adding has no branch on the number of lanes, which is
// unpredictable.
class BlockList {
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
  // Adds the lanes of these bits.
  void add(Ints blocks, Ints distances, Bits lanes) {
    store_some(blocks_.data() + count_, blocks, lanes);
    store_some(distances_.data() + count_, distances, lanes);
    count_ += __builtin_popcount(lanes);
  }
  // Adds the blocks of another list from one distance to another.
  void add(const BlockList& other, int32_t from, int32_t to) {
    const Ints least = splat(from), limit = splat(std::min(to, kFarthest - 1) + 1);
    for (size_t i = 0; i < other.count_; i += kLanes) {
      const Ints distances = load(other.distances_.data() + i);
      const Bits there = first_bits(static_cast<int>(std::min<size_t>(kLanes, other.count_ - i)));
      add(load(other.blocks_.data() + i), distances, below(distances, limit) & ~below(distances, least) & there);
    }
  }
  size_t count() const { return count_; }
  int64_t block(size_t i) const { return blocks_[i]; }
  float distance(size_t i) const { return static_cast<float>(distances_[i]); }

 private:
  std::vector<int32_t> blocks_, distances_;
  size_t count_ = 0;
};

// A query prepared for measuring blocks. Dimension: where it is known at compile time, so that the query stays in registers,
// else 0.
template <int Dimension>
class BlockQuery {
 public:
  void set(const Coded& query, const Coding& coding) {
    dimension_ = coding.dimension;
    unit_ = norm_unit(coding.dimension);
    sum_ = static_cast<float>(query.sum);
    quads_.assign(coding.quads() + kSpanQuads, 0);
    for (int64_t quad = 0; quad < coding.quads(); ++quad) quads_[quad] = query.signed_quad(quad);
  }

  // Calls visit(i, distances) for every block of the list.
  template <int Bits, class Visit>
  void measure(const uint8_t* blocks, const BlockList& list, Visit visit) const {
    constexpr int kQuads = 8 / Bits * kSpans<Bits>;
    SignedPacked4 query[std::max(1, kQuads)];
#pragma GCC unroll 32
    for (int q = 0; q < kQuads; ++q) query[q] = spread_signed(quads_[q]);
    const int64_t stride = block_bytes<Bits>(Dimension > 0 ? Dimension : dimension_);
    // The blocks are scattered, which the hardware prefetcher cannot predict.
    for (size_t i = 0; i < std::min(kAhead, list.count()); ++i) fetch(blocks + list.block(i) * stride, stride);
    size_t i = 0;
    if constexpr (Dimension == 0)
      for (; i + kBlocksAtOnce <= list.count(); i += kBlocksAtOnce)
        measure_some<Bits, kBlocksAtOnce>(blocks, list, i, stride, query, visit);
    for (; i < list.count(); ++i) measure_some<Bits, 1>(blocks, list, i, stride, query, visit);
  }

 private:
  static constexpr size_t kAhead = 4;
  static constexpr int64_t kSpanQuads = 8 / kFineBits;
  template <int Bits>
  static constexpr int kSpans = Dimension / kSpan<Bits>;

  // Measures some blocks of the list from the first one on; query: all quads where the dimension is known.
  template <int Bits, int Count, class Visit>
  __attribute__((always_inline)) void measure_some(const uint8_t* blocks, const BlockList& list, size_t first, int64_t stride,
                                                   const SignedPacked4* query, Visit& visit) const {
    const uint8_t* bytes[Count];
    Ints products[Count];
#pragma GCC unroll 4
    for (int b = 0; b < Count; ++b) {
      if (first + b + kAhead < list.count()) fetch(blocks + list.block(first + b + kAhead) * stride, stride);
      bytes[b] = blocks + list.block(first + b) * stride + kHeadBytes;
    }
    if constexpr (Dimension > 0) {
      CodeSums<Bits> sums = no_code_sums<Bits>();
#pragma GCC unroll 32
      for (int s = 0; s < kSpans<Bits>; ++s) add_codes<Bits>(sums, bytes[0] + s * kSpanBytes, query + 8 / Bits * s);
      products[0] = total<Bits>(sums);
    } else {
      sum_codes<Bits>(bytes, spans<Bits>(dimension_), quads_.data(), products);
    }
#pragma GCC unroll 4
    for (int b = 0; b < Count; ++b) {
      const auto* head = reinterpret_cast<const uint16_t*>(bytes[b] - kHeadBytes);
      const Floats bases = fma(load_half(head), splat(unit_), splat(list.distance(first + b)));
      const Floats both = fma(splat(-2.0f), to_floats(products[b]), splat(kLargest<Bits> * sum_));
      const Floats distances = fma(load_half(head + kLanes), both, bases);
      visit(first + b, round_to_ints(min(splat(kEmptyDistance), distances)));
    }
  }

  std::vector<uint32_t> quads_;
  int64_t dimension_ = 0;
  float sum_ = 0, unit_ = 0;
};

}  // namespace ibidem
