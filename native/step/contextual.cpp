// The contextual combiner: one softmax over the scores of the base model and of the neighbours, which a network computes from
// their features.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/activation.h"
#include "step/combiner.h"

namespace ibidem {
namespace {

// As in ibidem/combine/contextual.py.
constexpr float kFar = 10.0f;
constexpr float kLeastLogProb = -12.0f;
constexpr float kLogUnit = 4.0f;
constexpr float kTemperature = 0.15f;
constexpr float kLeastBase = 1e-12f;

float limit_log_prob(float x) { return std::min(0.0f, std::max(kLeastLogProb, x)); }

// Adds the products of a vector [inputs] with blocks of weights, `stride` outputs from one input to the next, to the biases of
// these blocks. Inputs alternate between two sums of each block, so that few additions wait for the one before.
template <int Blocks>
void multiply_blocks(const float* x, int64_t inputs, const float* weights, const float* bias, int64_t stride, float* out) {
  Floats sums[2][Blocks];
  for (int b = 0; b < Blocks; ++b) {
    sums[0][b] = load(bias + b * kLanes);
    sums[1][b] = splat(0.0f);
  }
  for (int64_t i = 0; i + 1 < inputs; i += 2)
    for (int half = 0; half < 2; ++half) {
      const Floats input = splat(x[i + half]);
      const float* row = weights + (i + half) * stride;
      for (int b = 0; b < Blocks; ++b) sums[half][b] = fma(input, load(row + b * kLanes), sums[half][b]);
    }
  if (inputs % 2 != 0) {
    const Floats input = splat(x[inputs - 1]);
    const float* row = weights + (inputs - 1) * stride;
    for (int b = 0; b < Blocks; ++b) sums[0][b] = fma(input, load(row + b * kLanes), sums[0][b]);
  }
  for (int b = 0; b < Blocks; ++b) store(out + b * kLanes, sums[0][b] + sums[1][b]);
}

// out = bias + weights^T x; weights: [inputs, outputs], outputs a multiple of 16.
void multiply(const float* x, int64_t inputs, const float* weights, const float* bias, int64_t outputs, float* out) {
  int64_t n = 0;
  for (; n + 4 * kLanes <= outputs; n += 4 * kLanes)
    multiply_blocks<4>(x, inputs, weights + n, bias + n, outputs, out + n);
  for (; n + 2 * kLanes <= outputs; n += 2 * kLanes)
    multiply_blocks<2>(x, inputs, weights + n, bias + n, outputs, out + n);
  if (n < outputs) multiply_blocks<1>(x, inputs, weights + n, bias + n, outputs, out + n);
}

// Buffers for one row after another, and the steps of the evaluation.
class ContextualEval {
 public:
  void weigh(const ContextualData& data, const NeighbourRow& row, const RowWeights& weights) {
    bool any = false;
    for (int64_t j = 0; j < data.k; ++j) any |= std::isfinite(row.distances[j]);
    if (!any) {
      *weights.base = 1.0f;
      std::fill_n(weights.neighbours, row.count, 0.0f);
      return;
    }
    set_features(data, row);
    evaluate_row(data);
    float highest = base_score_;
    for (int64_t j = 0; j < data.k; ++j) {
      scores_[j] = std::isfinite(row.distances[j]) ? score_neighbour(data, j) : -std::numeric_limits<float>::infinity();
      highest = std::max(highest, scores_[j]);
    }
    const float base = std::exp(base_score_ - highest);
    float total = base;
    for (int64_t j = 0; j < data.k; ++j) total += scores_[j] = std::exp(scores_[j] - highest);
    *weights.base = std::max(base / total, kLeastBase);
    for (int64_t j = 0; j < data.k; ++j) weights.neighbours[j] = scores_[j] / total;
  }

 private:
  float* features_of(int64_t j) { return features_.data() + j * kNeighbourFeatures; }

  void set_features(const ContextualData& data, const NeighbourRow& row) {
    features_.resize(data.k * kNeighbourFeatures + kRowFeatures);
    scores_.resize(data.k);
    set_probabilities(data, row);
    const float top[2] = {limit_log_prob(row.top_log_probs[0]), limit_log_prob(row.top_log_probs[1])};
    float least_apart = std::numeric_limits<float>::infinity(), nearest = kFar;
    for (int64_t j = 0; j < data.k; ++j) {
      const bool there = std::isfinite(row.distances[j]);
      const float near = there ? std::min(row.distances[j] / data.scale, kFar) : kFar;
      const float now = log_probs_[j], stored = log_probs_[data.k + j];
      const float apart = there ? row.source_distances[j] : 1.0f;
      if (j == 0) nearest = near;
      least_apart = std::min(least_apart, apart);
      const int64_t same = std::count(row.values, row.values + data.k, row.values[j]);
      const bool first = std::find(row.values, row.values + j, row.values[j]) == row.values + j;
      const float all[kNeighbourFeatures] = {
          near,
          near - nearest,
          now / kLogUnit,
          stored / kLogUnit,
          probs_[j],
          probs_[data.k + j],
          (now - top[0]) / kLogUnit,
          apart,
          apart,
          static_cast<float>(same) / static_cast<float>(data.k),
          static_cast<float>(j) / static_cast<float>(data.k),
          static_cast<float>(first),
      };
      std::copy(all, all + kNeighbourFeatures, features_of(j));
    }
    for (int64_t j = 0; j < data.k; ++j) features_of(j)[kApartFromLeast] -= least_apart;
    const float of_row[kRowFeatures] = {std::exp(top[0]), std::exp(top[1]), top[0] / kLogUnit, top[1] / kLogUnit};
    std::copy(of_row, of_row + kRowFeatures, features_of(data.k));
  }

  // Leaves the log-probabilities of all tokens now and then those when they were stored in log_probs_, [2 k], and their
  // exponentials in probs_. An absent neighbour is improbable.
  void set_probabilities(const ContextualData& data, const NeighbourRow& row) {
    log_probs_.resize(2 * data.k + kLanes);
    probs_.resize(2 * data.k + kLanes);
    for (int64_t j = 0; j < data.k; ++j) {
      const bool there = std::isfinite(row.distances[j]);
      log_probs_[j] = there ? limit_log_prob(row.base_log_probs[j]) : kLeastLogProb;
      log_probs_[data.k + j] = there ? limit_log_prob(row.stored_log_probs[j]) : kLeastLogProb;
    }
    for (int64_t j = 0; j < 2 * data.k; j += kLanes) store(probs_.data() + j, exponential(load(log_probs_.data() + j)));
  }

  // Leaves the hidden layer in hidden_, what it adds to the layer of each neighbour in shared_, and the score of the base
  // model and the factor of distances in their fields.
  void evaluate_row(const ContextualData& data) {
    hidden_.resize(data.hidden);
    shared_.resize(data.neighbour_hidden);
    multiply(features_.data(), data.k * kNeighbourFeatures + kRowFeatures, data.row_weight, data.row_bias, data.hidden,
             hidden_.data());
    Floats base = splat(0.0f), temperature = splat(0.0f);
    for (int64_t h = 0; h < data.hidden; h += kLanes) {
      const Floats active = tanh(load(hidden_.data() + h));
      store(hidden_.data() + h, active);
      base = fma(active, load(data.base_weight + h), base);
      temperature = fma(active, load(data.temperature_weight + h), temperature);
    }
    base_score_ = sum(base) + data.base_bias;
    decay_ = std::exp(sum(temperature) + data.temperature_bias) / kTemperature;
    multiply(hidden_.data(), data.hidden, data.context_weight, data.neighbour_bias, data.neighbour_hidden, shared_.data());
  }

  float score_neighbour(const ContextualData& data, int64_t j) {
    const float* features = features_of(j);
    Floats products = splat(0.0f);
    for (int64_t n = 0; n < data.neighbour_hidden; n += kLanes) {
      Floats sums = load(shared_.data() + n);
      for (int64_t i = 0; i < kNeighbourFeatures; ++i)
        sums = fma(splat(features[i]), load(data.neighbour_weight + i * data.neighbour_hidden + n), sums);
      products = fma(tanh(sums), load(data.score_weight + n), products);
    }
    return sum(products) + data.score_bias - features[kFromNearest] * decay_;
  }

  static constexpr int64_t kFromNearest = 1, kApartFromLeast = 8;

  std::vector<float> features_, log_probs_, probs_, hidden_, shared_, scores_;
  float base_score_ = 0.0f, decay_ = 0.0f;
};

}  // namespace

void weigh_contextual(const ContextualData& data, const NeighbourRow& row, const RowWeights& weights) {
  static thread_local ContextualEval eval;
  eval.weigh(data, row, weights);
}

}  // namespace ibidem
