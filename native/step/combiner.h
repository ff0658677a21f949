// Combiners: the weights of the base model and of each neighbour, from what was retrieved for one row.
//
// A combiner is plain data and a function chosen by its kind. To add a kind: declare its data and its function here, define
// the function in a file of its own, and add both to CombinerKind and to `weigh` in combiner.cpp. A kind that needs more
// about a neighbour than its distance and token gets it as a further field of NeighbourRow.
#pragma once

#include <cstdint>

namespace ibidem {

// What was retrieved for one row; all [count], nearest first.
struct NeighbourRow {
  int64_t count;
  const float* distances;  // squared; not finite where a neighbour is absent
  const int64_t* values;   // tokens
  // The rest is null for a combiner that does not need it.
  const float* base_log_probs;    // of the tokens, in the base model at this step
  const float* stored_log_probs;  // of the tokens, in the base model when the entries were stored
  const float* source_distances;  // 1 - cosine between the sources
  const float* top_log_probs;     // [2], the highest ones of the base model among allowed tokens
};

// Weights that sum to 1 in a row.
struct RowWeights {
  float* base;        // of the base model
  float* neighbours;  // [count]
};

// As in ibidem/native/step.py.
enum class CombinerKind : int64_t { kFixed = 0, kMetaK = 1, kDistanceDecay = 2, kContextual = 3 };

struct Combiner {
  CombinerKind kind;
  int64_t k;         // neighbours that it uses
  const void* data;  // of its kind, below; the layouts are those of ibidem/native/step.py
};

void weigh(const Combiner& combiner, const NeighbourRow& row, const RowWeights& weights);

// One weight and one temperature for all rows (vanilla kNN-MT): as combine.FixedCombiner.
struct FixedData {
  int64_t k;
  float weight, base_weight, temperature;
};
void weigh_fixed(const FixedData& data, const NeighbourRow& row, const RowWeights& weights);

// The Meta-k Network (Adaptive kNN-MT): as combine.AdaptiveCombiner. Features [d_1 .. d_K; c_1 .. c_K], a hidden layer with
// tanh, and a choice among 0, 1, 2, 4, .. K neighbours.
struct MetaKData {
  int64_t k;
  int64_t hidden;             // a multiple of 16, padded with zeros
  int64_t sizes;              // choices except 0: 1, 2, 4, .. K
  const float* inner_weight;  // [2 K, hidden]
  const float* inner_bias;    // [hidden]
  const float* outer_weight;  // [1 + sizes, hidden]
  const float* outer_bias;    // [1 + sizes]
  float scale, temperature;
};
void weigh_meta_k(const MetaKData& data, const NeighbourRow& row, const RowWeights& weights);

// A weight that decays with the distance of the nearest neighbour: as the untrained combiner of the combine package.
struct DistanceDecayData {
  float bandwidth;    // squared distance at which the weight is half of the largest one
  float slope;        // of the sigmoid, in squared distance
  float temperature;  // of the softmax over neighbours
  float weight;       // largest weight of the neighbours
  int64_t agreement;  // exponent of the largest share that one token has
};
void weigh_distance_decay(const DistanceDecayData& data, const NeighbourRow& row, const RowWeights& weights);

// A network that sees the context of each neighbour: as combine.ContextualCombiner, which describes the features.
constexpr int64_t kNeighbourFeatures = 12, kRowFeatures = 4;
struct ContextualData {
  int64_t k;
  int64_t hidden, neighbour_hidden;  // multiples of 16, padded with zeros
  const float* row_weight;           // [12 k + 4, hidden]
  const float* row_bias;             // [hidden]
  const float* base_weight;          // [hidden]
  const float* temperature_weight;   // [hidden]
  const float* neighbour_weight;     // [12, neighbour_hidden]
  const float* neighbour_bias;       // [neighbour_hidden]
  const float* context_weight;       // [hidden, neighbour_hidden]
  const float* score_weight;         // [neighbour_hidden]
  float base_bias, temperature_bias, score_bias, scale;
};
void weigh_contextual(const ContextualData& data, const NeighbourRow& row, const RowWeights& weights);

// exp(-d / temperature) up to one factor, 0 for absent neighbours; kernel: [count]. Returns the sum, 0 where all are absent.
float evaluate_kernel(const NeighbourRow& row, int64_t count, float temperature, float* kernel);

}  // namespace ibidem
