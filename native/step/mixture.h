// The best tokens of the base model's distribution mixed with weighted neighbours. The logits of a row are ranked first, which
// also gives the model's largest probability, and mixed once the neighbours are known.
//
// score(v) = logits[v] - lse + log base, and for a token of some neighbour log(exp(logits[v] - lse + log base) + their
// weights). Only tokens of neighbours change their rank, so the best of the mixture are among the best logits and the
// neighbours' tokens: nothing of vocabulary size is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/buffer.h"

namespace ibidem {

struct Candidate {
  double score;
  int64_t token;

  // Best first; of equal scores the lower token.
  bool operator<(const Candidate& other) const { return score != other.score ? score > other.score : token < other.token; }
};

// The neighbours of all rows; values, weights: [rows, count].
struct WeightedNeighbours {
  const float* base;  // [rows], the weight of the base model; null where there are no neighbours
  const int64_t* values;
  const float* weights;
  int64_t count;
};

class Mixture {
 public:
  // logits: [rows, size], `stride` floats from row to row; banned: [size], 1 for tokens that are never returned, at most
  // size - wanted of them.
  Mixture(const float* logits, int64_t rows, int64_t size, int64_t stride, const uint8_t* banned, int64_t banned_count,
          int64_t wanted)
      : logits_(logits),
        rows_(rows),
        size_(size),
        stride_(stride),
        banned_(banned),
        banned_count_(banned_count),
        wanted_(wanted) {}

  // Allocates the buffers that the next four need; those may be called by any thread in any order.
  void allocate();
  // Ranks the logits of a row that no thread has taken. False where there is none.
  bool rank_next();
  // How many rows no thread may have taken yet.
  int64_t unranked() const { return rows_ - next_; }
  // The probability of a row's best token, 0 where the row has no distribution.
  float max_prob(int64_t row) { return ranked(row).max_prob; }
  // The log-probability of a token, -inf where it is not in the vocabulary.
  float log_prob(int64_t row, int64_t token);
  // Prefetches what `log_prob` reads.
  void fetch_logit(int64_t row, int64_t token) const;
  // The two highest log-probabilities of tokens that are not banned; wanted must be at least 2.
  void top_log_probs(int64_t row, float* out);
  // Finds the best tokens of the mixture in a row; scores, tokens: [wanted].
  void mix(int64_t row, const WeightedNeighbours& neighbours, float* scores, int64_t* tokens);

  // Ranks and mixes all rows; scores, tokens: [rows, wanted]; normalisers: [rows], the log-sum-exp of each row's logits.
  void mix_all(const WeightedNeighbours& neighbours, float* scores, int64_t* tokens, float* normalisers, int threads) const;

 private:
  struct RowStats {
    double lse;  // log-sum-exp of the logits
    float max_prob;
  };
  class Row;
  enum class State : uint8_t { kNone, kTaken, kRanked };

  // Ranks a row unless another thread has taken it; whether this thread ranked it.
  bool take(int64_t row);
  // Ranks a row, or waits for the thread that has taken it.
  const RowStats& ranked(int64_t row);

  const float* logits_;
  int64_t rows_, size_, stride_;
  const uint8_t* banned_;
  int64_t banned_count_, wanted_;
  RowStats* stats_ = nullptr;               // [rows]
  Candidate* candidates_ = nullptr;         // [rows, wanted]
  std::atomic<int64_t> next_{0};            // row that no thread may have taken yet
  std::vector<std::atomic<State>> states_;  // [rows]
};

}  // namespace ibidem
