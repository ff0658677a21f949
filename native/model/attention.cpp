#include "model/attention.h"

#include <limits>

#include "simd/exponential.h"

namespace ibidem {
namespace {

float dot(const float* a, const float* b, int64_t size) {
  Floats products = splat(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) products = fma(load(a + i), load(b + i), products);
  if (i < size) {
    const int rest = static_cast<int>(size - i);
    products = fma(load_first(a + i, rest), load_first(b + i, rest), products);
  }
  return sum(products);
}

// The weighted sum of some columns of 16 numbers; several at once, so that additions do not wait for each other.
template <int Columns>
void mix_columns(const std::vector<const float*>& values, const float* weights, int64_t first, float* found) {
  Floats sums[Columns];
#pragma GCC unroll 4
  for (int c = 0; c < Columns; ++c) sums[c] = splat(0.0f);
  for (size_t j = 0; j < values.size(); ++j) {
    const Floats weight = splat(weights[j]);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) sums[c] = fma(weight, load(values[j] + first + c * kLanes), sums[c]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < Columns; ++c) store(found + first + c * kLanes, sums[c]);
}

}  // namespace

void Attention::attend(const float* query, int64_t size, float* found) {
  score(query, size);
  make_probabilities(scores_.data(), static_cast<int64_t>(scores_.size()));
  int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) mix_columns<4>(values_, scores_.data(), i, found);
  for (; i + kLanes <= size; i += kLanes) mix_columns<1>(values_, scores_.data(), i, found);
  if (i == size) return;
  const int rest = static_cast<int>(size - i);
  Floats sums = splat(0.0f);
  for (size_t j = 0; j < values_.size(); ++j) sums = fma(splat(scores_[j]), load_first(values_[j] + i, rest), sums);
  store_first(found + i, sums, rest);
}

void Attention::score(const float* query, int64_t size) {
  // Padded to whole registers with scores that have no weight.
  const size_t padded = (keys_.size() + kLanes - 1) / kLanes * kLanes;
  scores_.assign(padded, -std::numeric_limits<float>::infinity());
  for (size_t j = 0; j < keys_.size(); ++j) scores_[j] = dot(query, keys_[j], size);
}

void make_probabilities(float* scores, int64_t count) {
  Floats highest = load(scores);
  for (int64_t j = kLanes; j < count; j += kLanes) highest = max(highest, load(scores + j));
  const Floats top = splat(largest(highest));
  Floats sums = splat(0.0f);
  for (int64_t j = 0; j < count; j += kLanes) {
    const Floats share = exponential(load(scores + j) - top);
    sums = sums + share;
    store(scores + j, share);
  }
  const Floats scale = splat(1.0f / sum(sums));
  for (int64_t j = 0; j < count; j += kLanes) store(scores + j, load(scores + j) * scale);
}

}  // namespace ibidem
