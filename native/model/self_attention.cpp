#include "model/self_attention.h"

#include <algorithm>
#include <limits>

#include "model/attention.h"
#include "simd/simd.h"

namespace ibidem {
namespace {

constexpr int kQueries = 4;
constexpr int kPair = 2 * kLanes;

}  // namespace

void SelfAttention::attend(const float* first, int64_t tokens, int64_t size, int64_t width, float* found) {
  padded_ = (tokens + kPair - 1) / kPair * kPair;
  keys_ = keys_buffer_.of(size * padded_);
  scores_ = scores_buffer_.of(kQueries * padded_);
  for (int64_t i = 0; i < size; ++i) std::fill(keys_ + i * padded_ + tokens, keys_ + (i + 1) * padded_, 0.0f);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* key = first + t * 3 * width + width;
    for (int64_t i = 0; i < size; ++i) keys_[i * padded_ + t] = key[i];
  }
  const float* values = first + 2 * width;
  int64_t t = 0;
  for (; t + kQueries <= tokens; t += kQueries)
    attend_some<kQueries>(first + t * 3 * width, values, tokens, size, width, found + t * width);
  for (; t < tokens; ++t) attend_some<1>(first + t * 3 * width, values, tokens, size, width, found + t * width);
}

template <int Queries>
void SelfAttention::attend_some(const float* query, const float* values, int64_t tokens, int64_t size, int64_t width,
                                float* found) {
  const int64_t stride = 3 * width;
  for (int64_t t = 0; t < padded_; t += kPair) {
    Floats low[Queries], high[Queries];
    for (int q = 0; q < Queries; ++q) low[q] = high[q] = splat(0.0f);
    for (int64_t i = 0; i < size; ++i) {
      const Floats low_keys = load(keys_ + i * padded_ + t), high_keys = load(keys_ + i * padded_ + t + kLanes);
      for (int q = 0; q < Queries; ++q) {
        const Floats here = splat(query[q * stride + i]);
        low[q] = fma(here, low_keys, low[q]);
        high[q] = fma(here, high_keys, high[q]);
      }
    }
    for (int q = 0; q < Queries; ++q) {
      store(scores_ + q * padded_ + t, low[q]);
      store(scores_ + q * padded_ + t + kLanes, high[q]);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    float* scores = scores_ + q * padded_;
    // Scores beyond the last key have no weight.
    std::fill(scores + tokens, scores + padded_, -std::numeric_limits<float>::infinity());
    make_probabilities(scores, padded_);
  }
  for (int64_t column = 0; column < size; column += kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes, size - column));
    Floats sums[Queries];
    for (int q = 0; q < Queries; ++q) sums[q] = splat(0.0f);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* place = values + t * stride + column;
      const Floats value = count == kLanes ? load(place) : load_first(place, count);
      for (int q = 0; q < Queries; ++q) sums[q] = fma(splat(scores_[q * padded_ + t]), value, sums[q]);
    }
    for (int q = 0; q < Queries; ++q) store_first(found + q * width + column, sums[q], count);
  }
}

}  // namespace ibidem
