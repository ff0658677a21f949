// The adaptive combiner: a Meta-k Network chooses among 0, 1, 2, 4, .. K neighbours.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/activation.h"
#include "step/combiner.h"

namespace ibidem {
namespace {

// An absent or very far neighbour counts as this many typical distances.
constexpr float kFar = 10.0f;
constexpr float kLeastBase = 1e-12f;
constexpr float kLeastTotal = 1e-30f;

// Buffers for one row after another, and the steps of the evaluation.
class MetaKEval {
 public:
  void weigh(const MetaKData& data, const NeighbourRow& row, const RowWeights& weights) {
    if (!(evaluate_kernel(row, data.k, data.temperature, weights.neighbours) > 0)) {
      *weights.base = 1.0f;
      return;
    }
    sum_kernel(data, weights.neighbours);
    set_features(data, row);
    choose(data);
    double rest = 1.0;
    float factor = 0.0f;
    // From the last neighbour to the first: a farther neighbour is part of fewer choices.
    int64_t size = data.sizes - 1;
    for (int64_t j = data.k - 1; j >= 0; --j) {
      if (size >= 0 && j == (int64_t{1} << size) - 1) factor += choice_[1 + size--];
      weights.neighbours[j] *= factor;
      rest -= weights.neighbours[j];
    }
    *weights.base = std::max(static_cast<float>(rest), kLeastBase);
  }

 private:
  // Leaves the kernel sums of the nearest 1, 2, 4, .. neighbours in totals_.
  void sum_kernel(const MetaKData& data, const float* kernel) {
    totals_.clear();
    float total = 0.0f;
    for (int64_t j = 0; j < data.k; ++j) {
      total += kernel[j];
      if (((j + 1) & j) == 0) totals_.push_back(total);
    }
  }

  // Distances in units of the scale, and the number of distinct tokens among the nearest neighbours.
  void set_features(const MetaKData& data, const NeighbourRow& row) {
    features_.resize(2 * data.k);
    int distinct = 0;
    for (int64_t j = 0; j < data.k; ++j) {
      const float distance = row.distances[j] / data.scale;
      features_[j] = std::isfinite(distance) ? std::min(distance, kFar) : kFar;
      distinct += std::find(row.values, row.values + j, row.values[j]) == row.values + j;
      features_[data.k + j] = static_cast<float>(distinct);
    }
  }

  // Leaves the probability of each choice in choice_, that of 1, 2, 4, .. neighbours divided by their kernel sum.
  void choose(const MetaKData& data) {
    hidden_.resize(data.hidden);
    choice_.resize(1 + data.sizes);
    for (int64_t h = 0; h < data.hidden; h += kLanes) {
      Floats sums = load(data.inner_bias + h);
      for (int64_t j = 0; j < 2 * data.k; ++j)
        sums = fma(splat(features_[j]), load(data.inner_weight + j * data.hidden + h), sums);
      store(hidden_.data() + h, tanh(sums));
    }
    float highest = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c <= data.sizes; ++c) {
      Floats products = splat(0.0f);
      for (int64_t h = 0; h < data.hidden; h += kLanes)
        products = fma(load(hidden_.data() + h), load(data.outer_weight + c * data.hidden + h), products);
      choice_[c] = sum(products) + data.outer_bias[c];
      highest = std::max(highest, choice_[c]);
    }
    float total = 0.0f;
    for (float& one : choice_) total += one = std::exp(one - highest);
    for (float& one : choice_) one /= total;
    for (int64_t c = 0; c < data.sizes; ++c)
      choice_[1 + c] = totals_[c] > 0 ? choice_[1 + c] / std::max(totals_[c], kLeastTotal) : 0.0f;
  }

  std::vector<float> features_, hidden_, choice_, totals_;
};

}  // namespace

void weigh_meta_k(const MetaKData& data, const NeighbourRow& row, const RowWeights& weights) {
  static thread_local MetaKEval eval;
  eval.weigh(data, row, weights);
}

}  // namespace ibidem
