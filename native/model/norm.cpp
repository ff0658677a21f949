#include "model/norm.h"

#include <cmath>

#include "base/parallel.h"
#include "simd/simd.h"

namespace ibidem {
namespace {

// Elements of rows for which waking another thread pays.
constexpr int64_t kLeastElements = 1 << 15;

// Calls visit(first, count) for every 16 numbers of a row, and for the rest.
template <class Visit>
void visit_lanes(int64_t width, Visit visit) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) visit(i, kLanes);
  if (i < width) visit(i, static_cast<int>(width - i));
}

}  // namespace

void Norm::add_and_normalise(float* x, const float* added, int64_t rows, int64_t width, int64_t threads) const {
  parallel_for(threads_for(threads, rows * width, kLeastElements), rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) normalise_row(x + r * width, added + r * width, width);
  });
}

void Norm::normalise_row(float* x, const float* added, int64_t width) const {
  Floats total = splat(0.0f);
  visit_lanes(width, [&](int64_t i, int count) {
    const Floats here = load_first(x + i, count) + load_first(added + i, count);
    store_first(x + i, here, count);
    total = total + here;
  });
  const float mean = sum(total) / static_cast<float>(width);
  // A second pass instead of E[x^2] - E[x]^2, which loses precision where the mean is large.
  Floats squares = splat(0.0f);
  visit_lanes(width, [&](int64_t i, int count) {
    const Floats away = load_first(x + i, count) - splat(mean);
    squares = fma(away, keep_first(away, count), squares);
  });
  const float scale = 1.0f / std::sqrt(sum(squares) / static_cast<float>(width) + eps);
  visit_lanes(width, [&](int64_t i, int count) {
    const Floats away = load_first(x + i, count) - splat(mean);
    store_first(x + i, fma(away * splat(scale), load_first(weight + i, count), load_first(bias + i, count)), count);
  });
}

}  // namespace ibidem
