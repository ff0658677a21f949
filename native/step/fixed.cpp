// The fixed combiner: p = (1 - weight) p_NMT + weight softmax(-d / temperature).
#include <algorithm>

#include "step/combiner.h"

namespace ibidem {

void weigh_fixed(const FixedData& data, const NeighbourRow& row, const RowWeights& weights) {
  const int64_t used = std::min(data.k, row.count);
  std::fill(weights.neighbours + used, weights.neighbours + row.count, 0.0f);
  const float total = evaluate_kernel(row, used, data.temperature, weights.neighbours);
  *weights.base = total > 0 ? data.base_weight : 1.0f;
  if (!(total > 0)) return;
  for (int64_t j = 0; j < used; ++j) weights.neighbours[j] = data.weight * weights.neighbours[j] / total;
}

}  // namespace ibidem
