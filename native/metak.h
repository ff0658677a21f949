// The Meta-k Network: how much each neighbour and the base model count, from distances and values of neighbours.
//
// As in combine/adaptive.py: features [d_1 .. d_K; c_1 .. c_K], a hidden layer with tanh, a choice among 0, 1, 2, 4, .. K
// neighbours, and the share of a neighbour in every choice that it is part of.
#pragma once

#include <cstdint>
#include <vector>

namespace ibidem {

// The parts as Python hands them over; hidden is a multiple of 16, filled up with zeros. The layout is that of
// native/metak.py.
struct MetaK {
  int64_t k, hidden, sizes;     // sizes: of the choices 1, 2, 4, .. K
  const float* inner_weight;    // [2 K, hidden]
  const float* inner_bias;      // [hidden]
  const float* outer_weight;    // [1 + sizes, hidden]
  const float* outer_bias;      // [1 + sizes]
  float scale, temperature;
};

// Room to weigh one row after another.
class Weigher {
 public:
  explicit Weigher(const MetaK& net);

  // distances, values, neighbours: [K]; base: of the model.
  void weigh(const float* distances, const int64_t* values, float* base, float* neighbours);

 private:
  bool vote(const float* distances, float* votes);
  void set_features(const float* distances, const int64_t* values);
  void choose();

  const MetaK& net_;
  std::vector<float> features_, hidden_, choice_, totals_;
};

}  // namespace ibidem
