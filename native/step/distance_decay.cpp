// The combiner that needs no tuning: the neighbours' weight is weight x sigmoid((bandwidth - d_1) / slope) x a ** agreement,
// where d_1 is the distance of the nearest neighbour and a the largest share of the kernel that one token has.
#include <algorithm>
#include <cmath>
#include <limits>

#include "step/combiner.h"

namespace ibidem {
namespace {

constexpr float kLeastTotal = 1e-30f;

float power(float base, int64_t exponent) {
  float result = 1.0f;
  for (; exponent > 0; --exponent) result *= base;
  return result;
}

// The largest share that the neighbours of one token have together.
float largest_share(const int64_t* values, const float* shares, int64_t count) {
  float largest = 0.0f;
  for (int64_t j = 0; j < count; ++j) {
    float share = 0.0f;
    for (int64_t i = 0; i < count; ++i) share += values[i] == values[j] ? shares[i] : 0.0f;
    largest = std::max(largest, share);
  }
  return largest;
}

}  // namespace

void weigh_distance_decay(const DistanceDecayData& data, const NeighbourRow& row, const RowWeights& weights) {
  float nearest = std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < row.count; ++j)
    if (std::isfinite(row.distances[j])) nearest = std::min(nearest, row.distances[j]);
  float* shares = weights.neighbours;
  const float total = std::max(evaluate_kernel(row, row.count, data.temperature, shares), kLeastTotal);
  for (int64_t j = 0; j < row.count; ++j) shares[j] /= total;
  const float near = 1.0f / (1.0f + std::exp((nearest - data.bandwidth) / data.slope));
  const float weight = data.weight * near * power(largest_share(row.values, shares, row.count), data.agreement);
  *weights.base = 1.0f - weight;
  for (int64_t j = 0; j < row.count; ++j) shares[j] *= weight;
}

}  // namespace ibidem
