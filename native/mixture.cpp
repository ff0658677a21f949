// The best tokens of the base model mixed with weighted neighbours, in two passes over the logits of a row.
//
// score(v) = logits[v] - lse + log base, and for a token that neighbours vote for
// log(exp(logits[v] - lse + log base) + their weights). Only neighbours change their place among the tokens, so the
// best of the mixture are among the best raw logits and the neighbours: nothing of vocabulary size is written.
#include <cmath>
#include <limits>
#include <vector>

#include "exponential.h"
#include "exports.h"
#include "team.h"

namespace ibidem {
namespace {

struct Candidate {
  double score;
  int64_t token;

  // Best first; of equals the lower token.
  bool operator<(const Candidate& other) const {
    return score != other.score ? score > other.score : token < other.token;
  }
};

struct Neighbours {
  const int64_t* values;
  const float* weights;
  int64_t count;
};

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

class Row {
 public:
  Row(int64_t size, int64_t wanted, const uint8_t* banned, int64_t banned_count)
      : size_(size), wanted_(wanted), banned_(banned), banned_count_(banned_count) {
    candidates_.reserve(4 * kMaxima);
  }

  void find(const float* logits, float base, Neighbours neighbours, float* scores, int64_t* tokens) {
    Maxima maxima = find_maxima(logits, size_);
    candidates_.clear();
    const double lse = collect(logits, maxima.all, find_bound(maxima, wanted_ + banned_count_));
    // Infinity or NaN among the logits leave no distribution: any tokens will do, and their scores say so.
    const double shift = std::log(static_cast<double>(base)) - lse;
    if (std::isnan(shift) || !std::isfinite(lse)) return give_up(scores, tokens);
    keep_best();
    for (Candidate& candidate : candidates_) candidate.score += shift;
    add_votes(logits, shift, neighbours);
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
    for (; token + 2 * kLanes <= size_; token += 2 * kLanes) {
      for (int i = 0; i < 2; ++i) {
        const Floats here = load(logits + token + i * kLanes);
        sums[i] = sums[i] + exponential(here - highest_lanes);
        const Bits reached = at_least(here, bound_lanes);
        if (__builtin_expect(reached != 0, 0)) push(logits, token + i * kLanes, reached);
      }
    }
    double sum_of_rest = 0;
    for (; token < size_; ++token) {
      sum_of_rest += std::exp(static_cast<double>(logits[token]) - highest);
      if (logits[token] >= bound) push(logits, token, 1);
    }
    return highest + std::log(static_cast<double>(sum(sums[0])) + sum(sums[1]) + sum_of_rest);
  }

  void push(const float* logits, int64_t first, Bits which) {
    for (; which != 0; which &= which - 1) {
      const int64_t token = first + __builtin_ctz(which);
      if (!banned_[token]) candidates_.push_back({logits[token], token});
    }
  }

  void keep_best() {
    std::partial_sort(candidates_.begin(), candidates_.begin() + wanted_, candidates_.end());
    candidates_.resize(wanted_);
  }

  void add_votes(const float* logits, double shift, Neighbours neighbours) {
    for (int64_t j = 0; j < neighbours.count; ++j) {
      const int64_t token = neighbours.values[j];
      if (token < 0 || token >= size_ || banned_[token] || seen_before(neighbours, j)) continue;
      const double weight = weight_of(neighbours, token);
      if (!(weight > 0)) continue;
      const double score = std::log(std::exp(logits[token] + shift) + weight);
      auto known = std::find_if(candidates_.begin(), candidates_.end(), [&](auto& c) { return c.token == token; });
      if (known != candidates_.end())
        known->score = score;
      else
        candidates_.push_back({score, token});
    }
  }

  static bool seen_before(Neighbours neighbours, int64_t j) {
    return std::find(neighbours.values, neighbours.values + j, neighbours.values[j]) != neighbours.values + j;
  }

  // What all neighbours of a token weigh together; a weight that is not above zero is none.
  static double weight_of(Neighbours neighbours, int64_t token) {
    double weight = 0;
    for (int64_t j = 0; j < neighbours.count; ++j)
      if (neighbours.values[j] == token && neighbours.weights[j] > 0) weight += neighbours.weights[j];
    return weight;
  }

  void give_up(float* scores, int64_t* tokens) const {
    int64_t token = 0;
    for (int64_t i = 0; i < wanted_; ++i, ++token) {
      while (banned_[token]) ++token;
      scores[i] = std::numeric_limits<float>::quiet_NaN();
      tokens[i] = token;
    }
  }

  int64_t size_, wanted_;
  const uint8_t* banned_;
  int64_t banned_count_;
  std::vector<Candidate> candidates_;
};

}  // namespace
}  // namespace ibidem

// logits: [rows, size], `stride` floats from row to row; base: [rows]; values, weights: [rows, neighbours];
// banned: [size], 1 for tokens that never come, at most size - wanted; scores, tokens: [rows, wanted].
IBIDEM_EXPORT void ibidem_best_of_mixture(const float* logits, int64_t rows, int64_t size, int64_t stride,
                                          const float* base, const int64_t* values, const float* weights,
                                          int64_t neighbours, const uint8_t* banned, int64_t banned_count,
                                          int64_t wanted, float* scores, int64_t* tokens, int threads) {
  using namespace ibidem;
  share(threads, rows, [&](int64_t begin, int64_t end) {
    Row row(size, wanted, banned, banned_count);
    for (int64_t r = begin; r < end; ++r) {
      const Neighbours own{values + r * neighbours, weights + r * neighbours, neighbours};
      row.find(logits + r * stride, base == nullptr ? 1.0f : base[r], own, scores + r * wanted, tokens + r * wanted);
    }
  });
}
