// Running and finished hypotheses of sentences that are being translated: who goes on with which token, and who is done.
//
// As in decode/beams.py, rounding included. Of equal scores the first comes first, and NaN before all.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exports.h"
#include "guard.h"

namespace ibidem {

// The layout is that of native/beams.py.
struct BeamRules {
  int64_t beam, eos;
  int64_t force_end;  // whether the end of sentence is certain at the limit
};

namespace {

constexpr float kNever = -1.0e9f;
constexpr float kPossible = kNever / 2;

bool above(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

struct Ranked {
  float score;
  int64_t place;
};

// Leaves the `most` highest of `count` scores in `best`, highest first.
template <class Score>
void find_highest(int64_t count, int64_t most, Score score, std::vector<Ranked>& best) {
  best.clear();
  for (int64_t place = 0; place < count; ++place) {
    const float here = score(place);
    const bool full = static_cast<int64_t>(best.size()) == most;
    if (full && !above(here, best.back().score)) continue;
    if (full) best.pop_back();
    auto behind = best.end();
    while (behind != best.begin() && above(here, (behind - 1)->score)) --behind;
    best.insert(behind, {here, place});
  }
}

// A hypothesis that ended: its score by length, its last step, the hypothesis it went on from, and its last token.
struct Ended {
  float score;
  int64_t step, parent, token;
};

struct Link {
  int64_t parent, token;
};

struct Sentence {
  int64_t number, limit;
  std::vector<float> scores;  // [beam] of the running hypotheses
  std::vector<Ended> ended;   // [beam], best first
  std::vector<Link> chain;    // [steps, beam]
  std::vector<bool> silent;   // [steps, beam], who asked nobody; empty where none ever was
};

struct Grown {
  float score;
  int64_t parent, token;
  bool ends;
};

}  // namespace

class Beams {
 public:
  Beams(const BeamRules& rules, const int64_t* limits, int64_t sentences) : rules_(rules), closed_(sentences) {
    for (int64_t s = 0; s < sentences; ++s) {
      open_.push_back({s, limits[s], std::vector<float>(rules.beam, kNever), {}, {}, {}});
      open_.back().scores[0] = 0.0f;
      open_.back().ended.assign(rules.beam, {kNever, 0, 0, 0});
    }
  }

  // log_probs, tokens: [rows, width], the candidates of every row; counted: what a score is divided by at this length.
  // Leaves in rows and last_tokens [rows] those that go on, and gives the number of sentences that are still open.
  int64_t advance(const float* log_probs, const int64_t* tokens, int64_t width, float counted, int64_t* rows,
                  int64_t* last_tokens) {
    const int64_t beam = rules_.beam, sentences = open_.size();
    int64_t kept = 0;
    for (int64_t s = 0; s < sentences; ++s) {
      Sentence& sentence = open_[s];
      const bool last = length_ >= sentence.limit;
      extend(sentence, log_probs + s * beam * width, tokens + s * beam * width, width, last);
      finish(sentence, counted);
      go_on(sentence);
      if (last || hopeless(sentence, counted)) {
        closed_[sentence.number] = std::move(sentence);
        continue;
      }
      const Link* going = sentence.chain.data() + sentence.chain.size() - beam;
      for (int64_t b = 0; b < beam; ++b) {
        rows[kept * beam + b] = s * beam + going[b].parent;
        last_tokens[kept * beam + b] = going[b].token;
      }
      if (kept != s) open_[kept] = std::move(sentence);
      ++kept;
    }
    open_.resize(kept);
    ++length_;
    return kept;
  }

  // Which hypotheses [rows] are more than `most` below the best of their sentence: 1 for these, who ask nobody.
  void silence(float most, uint8_t* silent) {
    for (Sentence& sentence : open_) {
      const float least = sentence.scores[0] - most;
      sentence.silent.resize((length_ - 1) * rules_.beam);
      for (const float score : sentence.scores) {
        *silent++ = score < least;
        sentence.silent.push_back(score < least);
      }
    }
  }

  // How far the hypotheses [rows] are behind the best of their sentence.
  void lags(float* out) const {
    for (const Sentence& sentence : open_)
      for (const float score : sentence.scores) *out++ = sentence.scores[0] - score;
  }

  void numbers(int64_t* out) const {
    for (const Sentence& sentence : open_) *out++ = sentence.number;
  }

  // The tokens of a closed sentence's finished hypothesis, without their end; -1 where it has none of this rank. Of every
  // token, the end included, `silent` says whether nobody was asked about it.
  int64_t result(int64_t number, int64_t rank, float* score, int* cut, int64_t* tokens, uint8_t* silent) const {
    const Sentence& sentence = closed_[number];
    const Ended& end = sentence.ended[rank];
    *score = end.score;
    if (!(end.score > kPossible)) return -1;
    const bool whole = end.token == rules_.eos;
    *cut = !whole || (rules_.force_end != 0 && end.step + 1 >= sentence.limit);
    auto was_silent = [&](int64_t step, int64_t place) {
      const size_t here = step * rules_.beam + place;
      return here < sentence.silent.size() && sentence.silent[here];
    };
    int64_t place = end.parent;
    silent[end.step] = was_silent(end.step, place);
    for (int64_t step = end.step - 1; step >= 0; --step) {
      const Link& link = sentence.chain[step * rules_.beam + place];
      tokens[step] = link.token;
      place = link.parent;
      silent[step] = was_silent(step, place);
    }
    if (!whole) tokens[end.step] = end.token;
    return end.step + !whole;
  }

 private:
  // Leaves in grown_ the 2 x beam best extensions.
  void extend(const Sentence& sentence, const float* log_probs, const int64_t* tokens, int64_t width, bool last) {
    const int64_t beam = rules_.beam;
    auto total = [&](int64_t place) { return sentence.scores[place / width] + log_probs[place]; };
    find_highest(beam * width, std::min(2 * beam, beam * width), total, best_);
    grown_.clear();
    for (const Ranked& one : best_) {
      const int64_t token = tokens[one.place];
      grown_.push_back({one.score, one.place / width, token, last || token == rules_.eos});
    }
  }

  // Merges the extensions that end, among the best `beam` ones, into the finished hypotheses.
  void finish(Sentence& sentence, float counted) {
    const int64_t beam = rules_.beam;
    auto score = [&](int64_t place) {
      if (place < beam) return sentence.ended[place].score;
      const Grown& one = grown_[place - beam];
      const float normalised = one.score / counted;
      // What grew from a placeholder is no hypothesis, however its length scales the score.
      return one.ends && one.score > kPossible ? normalised : normalised + kNever;
    };
    find_highest(2 * beam, beam, score, best_);
    ended_.clear();
    for (const Ranked& one : best_) {
      if (one.place < beam) {
        ended_.push_back(sentence.ended[one.place]);
      } else {
        const Grown& from = grown_[one.place - beam];
        ended_.push_back({one.score, length_ - 1, from.parent, from.token});
      }
    }
    sentence.ended.swap(ended_);
  }

  // The `beam` best extensions that do not end are the running hypotheses.
  void go_on(Sentence& sentence) {
    auto score = [&](int64_t place) { return grown_[place].ends ? grown_[place].score + kNever : grown_[place].score; };
    find_highest(grown_.size(), rules_.beam, score, best_);
    for (int64_t b = 0; b < rules_.beam; ++b) {
      const Grown& from = grown_[best_[b].place];
      sentence.scores[b] = best_[b].score;
      sentence.chain.push_back({from.parent, from.token});
    }
  }

  // Whether the running hypotheses cannot get among the finished ones any more.
  bool hopeless(const Sentence& sentence, float counted) const {
    const float worst = sentence.ended.back().score;
    if (!(worst > kPossible)) return false;
    return rules_.beam == 1 || sentence.scores[0] / counted <= worst;
  }

  BeamRules rules_;
  int64_t length_ = 1;
  std::vector<Sentence> open_, closed_;  // closed_: [sentences]
  std::vector<Ranked> best_;
  std::vector<Grown> grown_;
  std::vector<Ended> ended_;
};

}  // namespace ibidem

// out: [rows]. See Beams::lags; for the library itself.
extern "C" void ibidem_beams_lags(const void* beams, float* out) { static_cast<const ibidem::Beams*>(beams)->lags(out); }

// limits: [sentences], the most tokens of each; null where there is no room.
IBIDEM_EXPORT void* ibidem_beams_new(const ibidem::BeamRules* rules, const int64_t* limits, int64_t sentences) {
  return ibidem::guard([&] { return new ibidem::Beams(*rules, limits, sentences); });
}

IBIDEM_EXPORT void ibidem_beams_free(void* beams) { delete static_cast<ibidem::Beams*>(beams); }

// The number of open sentences; -1 where there is no room.
IBIDEM_EXPORT int64_t ibidem_beams_advance(void* beams, const float* log_probs, const int64_t* tokens, int64_t width,
                                           float counted, int64_t* rows, int64_t* last_tokens) {
  const int64_t answer = ibidem::guard([&] {
    return static_cast<ibidem::Beams*>(beams)->advance(log_probs, tokens, width, counted, rows, last_tokens) + 1;
  });
  return answer - 1;
}

// silent: [rows]. See Beams::silence. 0 where there is no room.
IBIDEM_EXPORT int ibidem_beams_silence(void* beams, float most, uint8_t* silent) {
  return ibidem::guard([&] {
    static_cast<ibidem::Beams*>(beams)->silence(most, silent);
    return 1;
  });
}

// out: [open], the numbers of the open sentences.
IBIDEM_EXPORT void ibidem_beams_numbers(const void* beams, int64_t* out) {
  static_cast<const ibidem::Beams*>(beams)->numbers(out);
}

// tokens, silent: room for as many as the sentence's limit. See Beams::result.
IBIDEM_EXPORT int64_t ibidem_beams_result(const void* beams, int64_t sentence, int64_t rank, float* score, int* cut,
                                          int64_t* tokens, uint8_t* silent) {
  return static_cast<const ibidem::Beams*>(beams)->result(sentence, rank, score, cut, tokens, silent);
}
