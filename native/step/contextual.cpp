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
    const float top[2] = {limit_log_prob(row.top_log_probs[0]), limit_log_prob(row.top_log_probs[1])};
    float least_apart = std::numeric_limits<float>::infinity(), nearest = kFar;
    for (int64_t j = 0; j < data.k; ++j) {
      const bool there = std::isfinite(row.distances[j]);
      const float near = there ? std::min(row.distances[j] / data.scale, kFar) : kFar;
      const float now = there ? limit_log_prob(row.base_log_probs[j]) : kLeastLogProb;
      const float stored = there ? limit_log_prob(row.stored_log_probs[j]) : kLeastLogProb;
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
          std::exp(now),
          std::exp(stored),
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

  // Leaves the hidden layer in hidden_, what it adds to the layer of each neighbour in shared_, and the score of the base
  // model and the factor of distances in their fields.
  void evaluate_row(const ContextualData& data) {
    const int64_t inputs = data.k * kNeighbourFeatures + kRowFeatures;
    hidden_.resize(data.hidden);
    shared_.resize(data.neighbour_hidden);
    Floats base = splat(0.0f), temperature = splat(0.0f);
    for (int64_t h = 0; h < data.hidden; h += kLanes) {
      Floats sums = load(data.row_bias + h);
      for (int64_t i = 0; i < inputs; ++i) sums = fma(splat(features_[i]), load(data.row_weight + i * data.hidden + h), sums);
      sums = tanh(sums);
      store(hidden_.data() + h, sums);
      base = fma(sums, load(data.base_weight + h), base);
      temperature = fma(sums, load(data.temperature_weight + h), temperature);
    }
    base_score_ = sum(base) + data.base_bias;
    decay_ = std::exp(sum(temperature) + data.temperature_bias) / kTemperature;
    for (int64_t n = 0; n < data.neighbour_hidden; n += kLanes) {
      Floats sums = load(data.neighbour_bias + n);
      for (int64_t h = 0; h < data.hidden; ++h)
        sums = fma(splat(hidden_[h]), load(data.context_weight + h * data.neighbour_hidden + n), sums);
      store(shared_.data() + n, sums);
    }
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

  std::vector<float> features_, hidden_, shared_, scores_;
  float base_score_ = 0.0f, decay_ = 0.0f;
};

}  // namespace

void weigh_contextual(const ContextualData& data, const NeighbourRow& row, const RowWeights& weights) {
  static thread_local ContextualEval eval;
  eval.weigh(data, row, weights);
}

}  // namespace ibidem
