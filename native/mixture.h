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

  // Before threads come to `rank`.
  void make_room();
  // The best tokens of the base model's own, of rows that no other thread has taken, until none is left.
  void rank();
  // The probability of its best token, 0 where a row has no distribution. Of a row that some thread has taken: it is waited for.
  float surety(int64_t row) const;
  // The best of the mixture, after all have ranked; scores, tokens: [rows, wanted].
  void mix(const Votes& votes, float* scores, int64_t* tokens, int threads) const;
  // The same without ranking first.
  void find(const Votes& votes, float* scores, int64_t* tokens, int threads) const;

 private:
  // Of a row: what its logits sum up to in log space, and the probability of the largest of them.
  struct Standing {
    double lse;
    float surety;
  };
  class Row;

  const float* logits_;
  int64_t rows_, size_, stride_;
  const uint8_t* banned_;
  int64_t banned_count_, wanted_;
  Standing* standings_ = nullptr;    // [rows]
  Candidate* candidates_ = nullptr;  // [rows, wanted]
  std::atomic<int64_t> next_{0};     // row that nobody has taken yet
  std::vector<std::atomic<bool>> ranked_;  // [rows]
};

}  // namespace ibidem
