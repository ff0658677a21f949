// The best tokens of the base model mixed with weighted neighbours: first those of the base model, which tell how sure it is,
// and then, once the neighbours are known, those of the mixture.
//
// score(v) = logits[v] - lse + log base, and for a token that neighbours vote for
// log(exp(logits[v] - lse + log base) + their weights). Only neighbours change their place among the tokens, so the
// best of the mixture are among the best raw logits and the neighbours: nothing of vocabulary size is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "buffer.h"

namespace ibidem {

struct Candidate {
  double score;
  int64_t token;

  // Best first; of equals the lower token.
  bool operator<(const Candidate& other) const {
    return score != other.score ? score > other.score : token < other.token;
  }
};

// Of r rows; values, weights: [r, count].
struct Votes {
  const float* base;  // [r], null where nobody votes and the base model stands alone
  const int64_t* values;
  const float* weights;
  int64_t count;
};

class Mixture {
 public:
  // logits: [rows, size], `stride` floats from row to row; banned: [size], 1 for tokens that never come, at most size - wanted.
  Mixture(const float* logits, int64_t rows, int64_t size, int64_t stride, const uint8_t* banned, int64_t banned_count,
          int64_t wanted)
      : logits_(logits),
        rows_(rows),
        size_(size),
        stride_(stride),
        banned_(banned),
        banned_count_(banned_count),
        wanted_(wanted) {}

  // Before threads come to the next three, in any order.
  void make_room();
  // The best tokens of the base model's own, of a row that nobody has taken. Whether there was one.
  bool rank_next();
  // How many rows nobody may have taken yet.
  int64_t unranked() const { return rows_ - next_; }
  // The probability of its best token, 0 where a row has no distribution.
  float surety(int64_t row) { return ranked(row).surety; }
  // The best of the mixture in a row; scores, tokens: [wanted].
  void mix(int64_t row, const Votes& votes, float* scores, int64_t* tokens);

  // The same for all rows, [rows, wanted], by itself.
  void find(const Votes& votes, float* scores, int64_t* tokens, int threads) const;

 private:
  // Of a row: what its logits sum up to in log space, and the probability of the largest of them.
  struct Standing {
    double lse;
    float surety;
  };
  class Row;
  enum class Rank : uint8_t { kNone, kTaken, kDone };

  // Ranks a row, if nobody has taken it; then somebody has. Whether it was this thread.
  bool take(int64_t row);
  // How a row stands: ranked now, or by whoever has taken it, who is waited for.
  const Standing& ranked(int64_t row);

  const float* logits_;
  int64_t rows_, size_, stride_;
  const uint8_t* banned_;
  int64_t banned_count_, wanted_;
  Standing* standings_ = nullptr;    // [rows]
  Candidate* candidates_ = nullptr;  // [rows, wanted]
  std::atomic<int64_t> next_{0};     // row that nobody may have taken yet
  std::vector<std::atomic<Rank>> ranks_;  // [rows]
};

}  // namespace ibidem
