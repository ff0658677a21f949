#include "metak.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "activation.h"
#include "exports.h"
#include "guard.h"
#include "team.h"

namespace ibidem {
namespace {

// A missing or absurdly far neighbour counts as this many typical distances.
constexpr float kFar = 10.0f;
constexpr float kLeastBase = 1e-12f;
constexpr float kLeastTotal = 1e-30f;
// Rows that are worth another thread.
constexpr int64_t kLeastRows = 24;

}  // namespace

Weigher::Weigher(const MetaK& net) : net_(net), features_(2 * net.k), hidden_(net.hidden), choice_(1 + net.sizes) {}

void Weigher::weigh(const float* distances, const int64_t* values, float* base, float* neighbours) {
  if (!vote(distances, neighbours)) {  // nobody is there
    *base = 1.0f;
    return;
  }
  set_features(distances, values);
  choose();
  double rest = 1.0;
  float shares = 0.0f;
  // From the last neighbour to the first: who is farther is part of fewer choices.
  int64_t size = net_.sizes - 1;
  for (int64_t j = net_.k - 1; j >= 0; --j) {
    if (size >= 0 && j == (int64_t{1} << size) - 1) shares += choice_[1 + size--];
    neighbours[j] *= shares;
    rest -= neighbours[j];
  }
  *base = std::max(static_cast<float>(rest), kLeastBase);
}

// exp(-d / T) up to a factor, 0 for who is not there; false where nobody is. Also leaves in totals_ the sums of the
// nearest 1, 2, 4, ..
bool Weigher::vote(const float* distances, float* votes) {
  float nearest = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < net_.k; ++j)
    if (std::isfinite(distances[j])) nearest = std::max(nearest, -distances[j] / net_.temperature);
  totals_.clear();
  float total = 0.0f;
  for (int64_t j = 0; j < net_.k; ++j) {
    votes[j] = std::isfinite(distances[j]) ? std::exp(-distances[j] / net_.temperature - nearest) : 0.0f;
    total += votes[j];
    if (((j + 1) & j) == 0) totals_.push_back(total);
  }
  return nearest > -std::numeric_limits<float>::infinity();
}

void Weigher::set_features(const float* distances, const int64_t* values) {
  int distinct = 0;
  for (int64_t j = 0; j < net_.k; ++j) {
    const float near = distances[j] / net_.scale;
    features_[j] = std::isfinite(near) ? std::min(near, kFar) : kFar;
    distinct += std::find(values, values + j, values[j]) == values + j;
    features_[net_.k + j] = static_cast<float>(distinct);
  }
}

// Leaves in choice_ the probability of each choice, that of 1, 2, 4, .. neighbours divided by their votes.
void Weigher::choose() {
  for (int64_t h = 0; h < net_.hidden; h += kLanes) {
    Floats sums = load(net_.inner_bias + h);
    for (int64_t j = 0; j < 2 * net_.k; ++j)
      sums = fma(splat(features_[j]), load(net_.inner_weight + j * net_.hidden + h), sums);
    store(hidden_.data() + h, tanh(sums));
  }
  float highest = -std::numeric_limits<float>::infinity();
  for (int64_t c = 0; c <= net_.sizes; ++c) {
    Floats products = splat(0.0f);
    for (int64_t h = 0; h < net_.hidden; h += kLanes)
      products = fma(load(hidden_.data() + h), load(net_.outer_weight + c * net_.hidden + h), products);
    choice_[c] = sum(products) + net_.outer_bias[c];
    highest = std::max(highest, choice_[c]);
  }
  float total = 0.0f;
  for (float& one : choice_) total += one = std::exp(one - highest);
  for (float& one : choice_) one /= total;
  for (int64_t c = 0; c < net_.sizes; ++c)
    choice_[1 + c] = totals_[c] > 0 ? choice_[1 + c] / std::max(totals_[c], kLeastTotal) : 0.0f;
}

}  // namespace ibidem

// distances, values: [rows, K]; base: [rows]; neighbours: [rows, K]. 0 where there is no room.
IBIDEM_EXPORT int ibidem_metak_weigh(const ibidem::MetaK* net, const float* distances, const int64_t* values,
                                     int64_t rows, float* base, float* neighbours, int threads) {
  using namespace ibidem;
  return guard([&] {
    share(threads_for(threads, rows, kLeastRows), rows, [&](int64_t begin, int64_t end) {
      Weigher weigher(*net);
      for (int64_t r = begin; r < end; ++r)
        weigher.weigh(distances + r * net->k, values + r * net->k, base + r, neighbours + r * net->k);
    });
    return 1;
  });
}
