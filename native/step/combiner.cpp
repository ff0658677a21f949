#include "step/combiner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"

namespace ibidem {
namespace {

// Rows for which waking another thread pays.
constexpr int64_t kLeastRows = 24;

}  // namespace

void weigh(const Combiner& combiner, const NeighbourRow& row, const RowWeights& weights) {
  switch (combiner.kind) {
    case CombinerKind::kFixed:
      return weigh_fixed(*static_cast<const FixedData*>(combiner.data), row, weights);
    case CombinerKind::kMetaK:
      return weigh_meta_k(*static_cast<const MetaKData*>(combiner.data), row, weights);
    case CombinerKind::kDistanceDecay:
      return weigh_distance_decay(*static_cast<const DistanceDecayData*>(combiner.data), row, weights);
    case CombinerKind::kContextual:
      return weigh_contextual(*static_cast<const ContextualData*>(combiner.data), row, weights);
  }
}

float evaluate_kernel(const NeighbourRow& row, int64_t count, float temperature, float* kernel) {
  float nearest = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < count; ++j)
    if (std::isfinite(row.distances[j])) nearest = std::max(nearest, -row.distances[j] / temperature);
  if (std::isinf(nearest)) nearest = 0.0f;
  float total = 0.0f;
  for (int64_t j = 0; j < count; ++j) {
    kernel[j] = std::isfinite(row.distances[j]) ? std::exp(-row.distances[j] / temperature - nearest) : 0.0f;
    total += kernel[j];
  }
  return total;
}

}  // namespace ibidem

// distances, values and the context, which may be null for combiners that do not need it: [rows, count]; top_log_probs:
// [rows, 2]; base: [rows]; neighbours: [rows, count]. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_combiner_weigh(const ibidem::Combiner* combiner, const float* distances, const int64_t* values,
                                        const float* base_log_probs, const float* stored_log_probs,
                                        const float* source_distances, const float* top_log_probs, int64_t rows,
                                        int64_t count, float* base, float* neighbours, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    parallel_for(threads_for(threads, rows, kLeastRows), rows, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * count, r = begin; r < end; ++r, first += count) {
        NeighbourRow row{count, distances + first, values + first, nullptr, nullptr, nullptr, nullptr};
        if (top_log_probs != nullptr) {
          row.base_log_probs = base_log_probs + first;
          row.stored_log_probs = stored_log_probs + first;
          row.source_distances = source_distances + first;
          row.top_log_probs = top_log_probs + 2 * r;
        }
        weigh(*combiner, row, {base + r, neighbours + first});
      }
    });
    return 1;
  });
}
