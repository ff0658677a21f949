// Two passes over the logits of a row: maxima, then the log-sum-exp and the tokens above a bound.
#include "step/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "simd/exponential.h"

namespace ibidem {
namespace {

// Maxima of the logits in four registers; each lane covers its own tokens.
constexpr int kMaxima = 4 * kLanes;

struct Maxima {
  float lane[kMaxima];
  float all;
};

Maxima find_maxima(const float* logits, int64_t size) {
  Floats lanes[4];
  for (Floats& lane : lanes) lane = splat(-std::numeric_limits<float>::infinity());
  int64_t token = 0;
  for (; token + kMaxima <= size; token += kMaxima)
    for (int i = 0; i < 4; ++i) lanes[i] = max(lanes[i], load(logits + token + i * kLanes));
  Maxima found;
  found.all = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < 4; ++i) {
    // A lane may hold NaN, which would break the selection below.
    lanes[i] = max(lanes[i], splat(-std::numeric_limits<float>::infinity()));
    store(found.lane + i * kLanes, lanes[i]);
    found.all = std::max(found.all, largest(lanes[i]));
  }
  for (; token < size; ++token) found.all = std::max(found.all, logits[token]);
  return found;
}

// A bound that at least `count` logits reach: the count-th largest of the lanes' maxima.
float find_bound(Maxima& maxima, int64_t count) {
  if (count > kMaxima) return -std::numeric_limits<float>::infinity();
  std::nth_element(maxima.lane, maxima.lane + count - 1, maxima.lane + kMaxima, std::greater<float>());
  return maxima.lane[count - 1];
}

}  // namespace

class Mixture::Row {
 public:
  explicit Row(const Mixture& all) : all_(all), wanted_(all.wanted_), candidates_(thread_candidates()) {}

  // Leaves the best tokens of a row with their logits in `best`.
  RowStats rank(int64_t number, Candidate* best) {
    const float* logits = all_.logits_ + number * all_.stride_;
    Maxima maxima = find_maxima(logits, all_.size_);
    candidates_.clear();
    const double lse = collect(logits, maxima.all, find_bound(maxima, wanted_ + all_.banned_count_));
    if (std::isfinite(lse)) {
      keep_best();
      std::copy(candidates_.begin(), candidates_.end(), best);
    }
    const double max_prob = std::exp(maxima.all - lse);
    return {lse, max_prob > 0 ? static_cast<float>(max_prob) : 0.0f};
  }

  void mix(int64_t number, double lse, const Candidate* best, const WeightedNeighbours& neighbours, float* scores,
           int64_t* tokens) {
    const float* logits = all_.logits_ + number * all_.stride_;
    const int64_t count = neighbours.count;
    const float base = neighbours.base == nullptr ? 1.0f : neighbours.base[number];
    const OwnNeighbours own{neighbours.values + number * count, neighbours.weights + number * count, count};
    // With infinity or NaN among the logits there is no distribution: any tokens are returned, with NaN as their scores.
    const double shift = std::log(static_cast<double>(base)) - lse;
    if (std::isnan(shift) || !std::isfinite(lse)) return return_nan(scores, tokens);
    candidates_.assign(best, best + wanted_);
    for (Candidate& candidate : candidates_) candidate.score += shift;
    add_neighbours(logits, shift, own);
    keep_best();
    for (int64_t i = 0; i < wanted_; ++i) {
      scores[i] = static_cast<float>(candidates_[i].score);
      tokens[i] = candidates_[i].token;
    }
  }

 private:
  // The neighbours of one row.
  struct OwnNeighbours {
    const int64_t* values;
    const float* weights;
    int64_t count;
  };

  // Collects the tokens whose logits reach the bound, and returns the log-sum-exp of all.
  double collect(const float* logits, float highest, float bound) {
    const Floats highest_lanes = splat(highest), bound_lanes = splat(bound);
    Floats sums[2] = {splat(0.0f), splat(0.0f)};
    int64_t token = 0;
    for (; token + 2 * kLanes <= all_.size_; token += 2 * kLanes) {
      for (int i = 0; i < 2; ++i) {
        const Floats here = load(logits + token + i * kLanes);
        sums[i] = sums[i] + exponential(here - highest_lanes);
        const Bits reached = at_least(here, bound_lanes);
        if (__builtin_expect(reached != 0, 0)) push(logits, token + i * kLanes, reached);
      }
    }
    double sum_of_rest = 0;
    for (; token < all_.size_; ++token) {
      sum_of_rest += std::exp(static_cast<double>(logits[token]) - highest);
      if (logits[token] >= bound) push(logits, token, 1);
    }
    return highest + std::log(static_cast<double>(sum(sums[0])) + sum(sums[1]) + sum_of_rest);
  }

  void push(const float* logits, int64_t first, Bits which) {
    for (; which != 0; which &= which - 1) {
      const int64_t token = first + __builtin_ctz(which);
      if (!all_.banned_[token]) candidates_.push_back({logits[token], token});
    }
  }

  void keep_best() {
    std::partial_sort(candidates_.begin(), candidates_.begin() + wanted_, candidates_.end());
    candidates_.resize(wanted_);
  }

  void add_neighbours(const float* logits, double shift, const OwnNeighbours& own) {
    for (int64_t j = 0; j < own.count; ++j) {
      const int64_t token = own.values[j];
      if (token < 0 || token >= all_.size_ || all_.banned_[token] || seen_before(own, j)) continue;
      const double weight = weight_of(own, token);
      if (!(weight > 0)) continue;
      const double score = std::log(std::exp(logits[token] + shift) + weight);
      auto known = std::find_if(candidates_.begin(), candidates_.end(), [&](auto& c) { return c.token == token; });
      if (known != candidates_.end())
        known->score = score;
      else
        candidates_.push_back({score, token});
    }
  }

  static bool seen_before(const OwnNeighbours& own, int64_t j) {
    return std::find(own.values, own.values + j, own.values[j]) != own.values + j;
  }

  // The summed weight of the neighbours with a token; weights that are not positive do not count.
  static double weight_of(const OwnNeighbours& own, int64_t token) {
    double weight = 0;
    for (int64_t j = 0; j < own.count; ++j)
      if (own.values[j] == token && own.weights[j] > 0) weight += own.weights[j];
    return weight;
  }

  void return_nan(float* scores, int64_t* tokens) const {
    int64_t token = 0;
    for (int64_t i = 0; i < wanted_; ++i, ++token) {
      while (all_.banned_[token]) ++token;
      scores[i] = std::numeric_limits<float>::quiet_NaN();
      tokens[i] = token;
    }
  }

  // A buffer of this thread, which is reused.
  static std::vector<Candidate>& thread_candidates() {
    static thread_local std::vector<Candidate> candidates;
    return candidates;
  }

  const Mixture& all_;
  int64_t wanted_;
  std::vector<Candidate>& candidates_;
};

void Mixture::allocate() {
  static thread_local Scratch<RowStats> stats;
  static thread_local Scratch<Candidate> candidates;
  stats_ = stats.of(rows_);
  candidates_ = candidates.of(rows_ * wanted_);
  states_ = std::vector<std::atomic<State>>(rows_);
}

bool Mixture::rank_next() {
  for (int64_t row = next_++; row < rows_; row = next_++)
    if (take(row)) return true;
  return false;
}

bool Mixture::take(int64_t row) {
  State none = State::kNone;
  if (!states_[row].compare_exchange_strong(none, State::kTaken)) return false;
  stats_[row] = Row(*this).rank(row, candidates_ + row * wanted_);
  states_[row].store(State::kRanked, std::memory_order_release);
  return true;
}

const Mixture::RowStats& Mixture::ranked(int64_t row) {
  const auto is_ranked = [&] { return states_[row].load(std::memory_order_acquire) == State::kRanked; };
  // The exchange in `take` would keep the processor from loading several logits at once.
  if (!is_ranked() && !take(row))
    while (!is_ranked()) std::this_thread::yield();
  return stats_[row];
}

float Mixture::log_prob(int64_t row, int64_t token) {
  if (token < 0 || token >= size_) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(logits_[row * stride_ + token] - ranked(row).lse);
}

void Mixture::fetch_logit(int64_t row, int64_t token) const {
  if (token >= 0 && token < size_) __builtin_prefetch(logits_ + row * stride_ + token);
}

void Mixture::top_log_probs(int64_t row, float* out) {
  const double lse = ranked(row).lse;
  for (int64_t i = 0; i < 2; ++i) {
    const double score = candidates_[row * wanted_ + i].score - lse;
    out[i] = std::isfinite(lse) ? static_cast<float>(score) : -std::numeric_limits<float>::infinity();
  }
}

void Mixture::mix(int64_t row, const WeightedNeighbours& neighbours, float* scores, int64_t* tokens) {
  const double lse = ranked(row).lse;
  Row(*this).mix(row, lse, candidates_ + row * wanted_, neighbours, scores, tokens);
}

void Mixture::mix_all(const WeightedNeighbours& neighbours, float* scores, int64_t* tokens, float* normalisers,
                      int threads) const {
  parallel_for(threads, rows_, [&](int64_t begin, int64_t end) {
    Row row(*this);
    std::vector<Candidate> best(wanted_);
    for (int64_t r = begin; r < end; ++r) {
      const RowStats stats = row.rank(r, best.data());
      row.mix(r, stats.lse, best.data(), neighbours, scores + r * wanted_, tokens + r * wanted_);
      if (normalisers != nullptr) normalisers[r] = static_cast<float>(stats.lse);
    }
  });
}

}  // namespace ibidem

// values, weights: [rows, neighbours]; base: [rows]; all three null where there are no neighbours. normalisers: null where they
// are not wanted. For the rest see Mixture.
// Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_best_of_mixture(const float* logits, int64_t rows, int64_t size, int64_t stride, const float* base,
                                         const int64_t* values, const float* weights, int64_t neighbours, const uint8_t* banned,
                                         int64_t banned_count, int64_t wanted, float* scores, int64_t* tokens, float* normalisers,
                                         int threads) {
  return ibidem::noexcept_call([&] {
    ibidem::Mixture mixture(logits, rows, size, stride, banned, banned_count, wanted);
    mixture.mix_all({base, values, weights, neighbours}, scores, tokens, normalisers, threads);
    return 1;
  });
}
