// See mixture.h; two passes over the logits of a row.
#include "mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "exponential.h"
#include "exports.h"
#include "guard.h"
#include "team.h"

namespace ibidem {
namespace {

// Maxima of the logits in four registers of lanes, each lane over its own tokens.
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
    // A lane may hold a NaN that it met last, which no sort could bear.
    lanes[i] = max(lanes[i], splat(-std::numeric_limits<float>::infinity()));
    store(found.lane + i * kLanes, lanes[i]);
    found.all = std::max(found.all, largest(lanes[i]));
  }
  for (; token < size; ++token) found.all = std::max(found.all, logits[token]);
  return found;
}

// A number that at least `count` logits reach: the count-th of the lanes' maxima, since every lane has its own tokens.
float find_bound(Maxima& maxima, int64_t count) {
  if (count > kMaxima) return -std::numeric_limits<float>::infinity();
  std::nth_element(maxima.lane, maxima.lane + count - 1, maxima.lane + kMaxima, std::greater<float>());
  return maxima.lane[count - 1];
}

}  // namespace

class Mixture::Row {
 public:
  explicit Row(const Mixture& all) : all_(all), wanted_(all.wanted_), candidates_(room()) {}

  // Leaves the best tokens of a row in `best`, with their logits.
  Standing rank(int64_t number, Candidate* best) {
    const float* logits = all_.logits_ + number * all_.stride_;
    Maxima maxima = find_maxima(logits, all_.size_);
    candidates_.clear();
    const double lse = collect(logits, maxima.all, find_bound(maxima, wanted_ + all_.banned_count_));
    if (std::isfinite(lse)) {
      keep_best();
      std::copy(candidates_.begin(), candidates_.end(), best);
    }
    const double surety = std::exp(maxima.all - lse);
    return {lse, surety > 0 ? static_cast<float>(surety) : 0.0f};
  }

  void mix(int64_t number, double lse, const Candidate* best, const Votes& all_votes, float* scores, int64_t* tokens) {
    const float* logits = all_.logits_ + number * all_.stride_;
    const int64_t count = all_votes.count;
    const float base = all_votes.base == nullptr ? 1.0f : all_votes.base[number];
    const Votes votes{nullptr, all_votes.values + number * count, all_votes.weights + number * count, count};
    // Infinity or NaN among the logits leave no distribution: any tokens will do, and their scores say so.
    const double shift = std::log(static_cast<double>(base)) - lse;
    if (std::isnan(shift) || !std::isfinite(lse)) return give_up(scores, tokens);
    candidates_.assign(best, best + wanted_);
    for (Candidate& candidate : candidates_) candidate.score += shift;
    add_votes(logits, shift, votes);
    keep_best();
    for (int64_t i = 0; i < wanted_; ++i) {
      scores[i] = static_cast<float>(candidates_[i].score);
      tokens[i] = candidates_[i].token;
    }
  }

 private:
  // Gathers the tokens whose logits reach the bound, and gives the log-sum-exp of all.
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

  void add_votes(const float* logits, double shift, const Votes& votes) {
    for (int64_t j = 0; j < votes.count; ++j) {
      const int64_t token = votes.values[j];
      if (token < 0 || token >= all_.size_ || all_.banned_[token] || seen_before(votes, j)) continue;
      const double weight = weight_of(votes, token);
      if (!(weight > 0)) continue;
      const double score = std::log(std::exp(logits[token] + shift) + weight);
      auto known = std::find_if(candidates_.begin(), candidates_.end(), [&](auto& c) { return c.token == token; });
      if (known != candidates_.end())
        known->score = score;
      else
        candidates_.push_back({score, token});
    }
  }

  static bool seen_before(const Votes& votes, int64_t j) {
    return std::find(votes.values, votes.values + j, votes.values[j]) != votes.values + j;
  }

  // What all neighbours of a token weigh together; a weight that is not above zero is none.
  static double weight_of(const Votes& votes, int64_t token) {
    double weight = 0;
    for (int64_t j = 0; j < votes.count; ++j)
      if (votes.values[j] == token && votes.weights[j] > 0) weight += votes.weights[j];
    return weight;
  }

  void give_up(float* scores, int64_t* tokens) const {
    int64_t token = 0;
    for (int64_t i = 0; i < wanted_; ++i, ++token) {
      while (all_.banned_[token]) ++token;
      scores[i] = std::numeric_limits<float>::quiet_NaN();
      tokens[i] = token;
    }
  }

  // This thread's, which is used again and again.
  static std::vector<Candidate>& room() {
    static thread_local std::vector<Candidate> candidates;
    return candidates;
  }

  const Mixture& all_;
  int64_t wanted_;
  std::vector<Candidate>& candidates_;
};

void Mixture::make_room() {
  static thread_local Scratch<Standing> standings;
  static thread_local Scratch<Candidate> candidates;
  standings_ = standings.of(rows_);
  candidates_ = candidates.of(rows_ * wanted_);
  ranks_ = std::vector<std::atomic<Rank>>(rows_);
}

bool Mixture::rank_next() {
  for (int64_t row = next_++; row < rows_; row = next_++)
    if (take(row)) return true;
  return false;
}

bool Mixture::take(int64_t row) {
  Rank none = Rank::kNone;
  if (!ranks_[row].compare_exchange_strong(none, Rank::kTaken)) return false;
  standings_[row] = Row(*this).rank(row, candidates_ + row * wanted_);
  ranks_[row].store(Rank::kDone, std::memory_order_release);
  return true;
}

const Mixture::Standing& Mixture::ranked(int64_t row) {
  if (!take(row))
    while (ranks_[row].load(std::memory_order_acquire) != Rank::kDone) std::this_thread::yield();
  return standings_[row];
}

void Mixture::mix(int64_t row, const Votes& votes, float* scores, int64_t* tokens) {
  const double lse = ranked(row).lse;
  Row(*this).mix(row, lse, candidates_ + row * wanted_, votes, scores, tokens);
}

void Mixture::find(const Votes& votes, float* scores, int64_t* tokens, int threads) const {
  share(threads, rows_, [&](int64_t begin, int64_t end) {
    Row row(*this);
    std::vector<Candidate> best(wanted_);
    for (int64_t r = begin; r < end; ++r) {
      const Standing standing = row.rank(r, best.data());
      row.mix(r, standing.lse, best.data(), votes, scores + r * wanted_, tokens + r * wanted_);
    }
  });
}

}  // namespace ibidem

// values, weights: [rows, neighbours]; base: [rows]; all three null where there are none. See Mixture. 0 where there is no room.
IBIDEM_EXPORT int ibidem_best_of_mixture(const float* logits, int64_t rows, int64_t size, int64_t stride,
                                         const float* base, const int64_t* values, const float* weights,
                                         int64_t neighbours, const uint8_t* banned, int64_t banned_count, int64_t wanted,
                                         float* scores, int64_t* tokens, int threads) {
  return ibidem::guard([&] {
    ibidem::Mixture mixture(logits, rows, size, stride, banned, banned_count, wanted);
    mixture.find({base, values, weights, neighbours}, scores, tokens, threads);
    return 1;
  });
}
