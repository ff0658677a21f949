// Running and finished hypotheses of the sentences of a batch; as decode.Beams in torch, rounding included. Of equal scores the
// first one is taken, and NaN ranks before all.
#pragma once

#include <cstdint>
#include <vector>

namespace ibidem {

// The layout is that of ibidem/native/beams.py.
struct BeamRules {
  int64_t beam, eos;
  int64_t force_end;  // whether the end of sentence is forced at the limit
};

// What is known of the state from which a hypothesis is extended.
struct StateEvidence {
  float weight = 0;    // of all neighbours in the mixture
  float distance = 0;  // squared, of the nearest neighbour; without one, infinite
  int64_t entry = -1;  // the nearest neighbour, -1 without one
};

// The evidence for one token of a hypothesis; the layout is that of ibidem/native/beams.py.
struct TokenEvidence {
  float log_prob, base_log_prob;  // in the mixture and in the base model
  float weight, distance;         // as in StateEvidence
};

class Beams {
 public:
  // limits: [sentences], the most tokens of each.
  Beams(const BeamRules& rules, const int64_t* limits, int64_t sentences);

  // Extends all hypotheses by one of their candidates. log_probs, tokens: [rows, width]; divisor: of scores at this length.
  // Leaves the rows that continue and their tokens in rows and last_tokens [rows], and returns the number of open sentences.
  int64_t advance(const float* log_probs, const int64_t* tokens, int64_t width, float divisor, int64_t* rows,
                  int64_t* last_tokens);

  // Sets skipped [rows] to 1 for hypotheses that score more than `margin` below the best of their sentence, and records it.
  void mask_lagging(float margin, uint8_t* skipped);
  // How much lower than the best of their sentence the hypotheses [rows] score.
  void score_gaps(float* out) const;
  // The numbers of the open sentences.
  void numbers(int64_t* out) const;

  // Records what is known of the states of the running hypotheses: weights, distances, entries [rows], each `stride` from row to
  // row. The base weight of row r is base_weights[r].
  void record_states(const float* base_weights, const float* distances, const int64_t* entries, int64_t stride);
  // Records the candidates that follow: tokens [rows, width] and their log-probabilities in the base model. Candidates of which
  // nothing is recorded have the same log-probability in the base model as in the mixture.
  void record_candidates(const int64_t* tokens, const float* base_log_probs, int64_t width);

  // Reads a closed sentence's finished hypothesis: its tokens without the end of sentence, and whether each token, the end
  // included, was predicted without retrieval. evidence, entries: of each token, the end included. Returns the number of tokens,
  // -1 where there is no hypothesis of this rank.
  int64_t result(int64_t number, int64_t rank, float* score, int* cut, int64_t* tokens, uint8_t* skipped,
                 TokenEvidence* evidence, int64_t* entries) const;

 private:
  struct Ranked {
    float score;
    int64_t place;
  };
  // A finished hypothesis: its normalised score, its last step, the hypothesis that it extends, and its last token with its
  // log-probabilities in mixture and base model.
  struct Finished {
    float score;
    int64_t step, parent, token;
    float log_prob, base_log_prob;
  };
  struct Link {
    int64_t parent, token;
    float log_prob, base_log_prob;
  };
  struct Sentence {
    int64_t number, limit;
    std::vector<float> scores;       // [beam] of the running hypotheses
    std::vector<Finished> finished;  // [beam], best first
    std::vector<Link> chain;         // [steps, beam]
    std::vector<bool> skipped;       // [steps, beam], without retrieval; empty where none ever was
    std::vector<StateEvidence> states;  // [steps, beam]; empty where nothing was ever recorded
  };
  struct Extension {
    float score;
    int64_t parent, token;
    bool ends;
    float log_prob, base_log_prob;
  };

  template <class Score>
  static void find_highest(int64_t count, int64_t most, Score score, std::vector<Ranked>& best);
  // first: the number of the sentence's first candidate.
  void extend(const Sentence& sentence, const float* log_probs, const int64_t* tokens, int64_t width, bool last, int64_t first);
  float base_log_prob(int64_t candidate, int64_t token, float log_prob) const;
  void merge_finished(Sentence& sentence, float divisor);
  void keep_running(Sentence& sentence);
  bool cannot_improve(const Sentence& sentence, float divisor) const;

  BeamRules rules_;
  int64_t length_ = 1;
  std::vector<Sentence> open_, closed_;  // closed_: [sentences]
  std::vector<Ranked> best_;
  std::vector<Extension> extensions_;
  std::vector<Finished> finished_;
  std::vector<int64_t> recorded_tokens_;  // [rows, width] of the next step; empty where none were recorded
  std::vector<float> recorded_log_probs_;
};

}  // namespace ibidem
