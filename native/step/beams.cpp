#include "step/beams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/exports.h"
#include "base/noexcept_call.h"

namespace ibidem {
namespace {

constexpr float kNever = -1.0e9f;
constexpr float kPossible = kNever / 2;

bool above(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

}  // namespace

// Leaves the `most` highest of `count` scores in `best`, highest first.
template <class Score>
void Beams::find_highest(int64_t count, int64_t most, Score score, std::vector<Ranked>& best) {
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

Beams::Beams(const BeamRules& rules, const int64_t* limits, int64_t sentences) : rules_(rules), closed_(sentences) {
  for (int64_t s = 0; s < sentences; ++s) {
    open_.push_back({s, limits[s], std::vector<float>(rules.beam, kNever), {}, {}, {}, {}});
    open_.back().scores[0] = 0.0f;
    open_.back().finished.assign(rules.beam, {kNever, 0, 0, 0, 0, 0});
  }
}

int64_t Beams::advance(const float* log_probs, const int64_t* tokens, int64_t width, float divisor, int64_t* rows,
                       int64_t* last_tokens) {
  const int64_t beam = rules_.beam, sentences = open_.size();
  if (recorded_tokens_.size() != static_cast<size_t>(sentences * beam * width)) recorded_tokens_.clear();
  int64_t kept = 0;
  for (int64_t s = 0; s < sentences; ++s) {
    Sentence& sentence = open_[s];
    const bool last = length_ >= sentence.limit;
    extend(sentence, log_probs + s * beam * width, tokens + s * beam * width, width, last, s * beam * width);
    merge_finished(sentence, divisor);
    keep_running(sentence);
    if (last || cannot_improve(sentence, divisor)) {
      closed_[sentence.number] = std::move(sentence);
      continue;
    }
    const Link* running = sentence.chain.data() + sentence.chain.size() - beam;
    for (int64_t b = 0; b < beam; ++b) {
      rows[kept * beam + b] = s * beam + running[b].parent;
      last_tokens[kept * beam + b] = running[b].token;
    }
    if (kept != s) open_[kept] = std::move(sentence);
    ++kept;
  }
  open_.resize(kept);
  recorded_tokens_.clear();
  ++length_;
  return kept;
}

void Beams::mask_lagging(float margin, uint8_t* skipped) {
  for (Sentence& sentence : open_) {
    const float least = sentence.scores[0] - margin;
    sentence.skipped.resize((length_ - 1) * rules_.beam);
    for (const float score : sentence.scores) {
      *skipped++ = score < least;
      sentence.skipped.push_back(score < least);
    }
  }
}

void Beams::score_gaps(float* out) const {
  for (const Sentence& sentence : open_)
    for (const float score : sentence.scores) *out++ = sentence.scores[0] - score;
}

void Beams::numbers(int64_t* out) const {
  for (const Sentence& sentence : open_) *out++ = sentence.number;
}

void Beams::record_states(const float* base_weights, const float* distances, const int64_t* entries, int64_t stride) {
  for (Sentence& sentence : open_) {
    sentence.states.resize((length_ - 1) * rules_.beam);
    for (int64_t b = 0; b < rules_.beam; ++b) {
      const bool known = *entries >= 0;
      sentence.states.push_back({known ? 1.0f - *base_weights : 0.0f, *distances, known ? *entries : -1});
      ++base_weights;
      distances += stride;
      entries += stride;
    }
  }
}

void Beams::record_candidates(const int64_t* tokens, const float* base_log_probs, int64_t width) {
  const int64_t count = static_cast<int64_t>(open_.size()) * rules_.beam * width;
  recorded_tokens_.assign(tokens, tokens + count);
  recorded_log_probs_.assign(base_log_probs, base_log_probs + count);
}

// A candidate may have been replaced after it was recorded.
float Beams::base_log_prob(int64_t candidate, int64_t token, float log_prob) const {
  const bool known = !recorded_tokens_.empty() && recorded_tokens_[candidate] == token;
  return known ? recorded_log_probs_[candidate] : log_prob;
}

int64_t Beams::result(int64_t number, int64_t rank, float* score, int* cut, int64_t* tokens, uint8_t* skipped,
                      TokenEvidence* evidence, int64_t* entries) const {
  const Sentence& sentence = closed_[number];
  const Finished& end = sentence.finished[rank];
  *score = end.score;
  if (!(end.score > kPossible)) return -1;
  const bool whole = end.token == rules_.eos;
  *cut = !whole || (rules_.force_end != 0 && end.step + 1 >= sentence.limit);
  auto was_skipped = [&](int64_t step, int64_t place) {
    const size_t here = step * rules_.beam + place;
    return here < sentence.skipped.size() && sentence.skipped[here];
  };
  auto put_evidence = [&](int64_t step, int64_t place, float log_prob, float base_log_prob) {
    const size_t here = step * rules_.beam + place;
    const bool known = here < sentence.states.size();
    const StateEvidence state = known ? sentence.states[here] : StateEvidence();
    const float distance = state.entry < 0 ? std::numeric_limits<float>::infinity() : state.distance;
    evidence[step] = {log_prob, base_log_prob, state.weight, distance};
    entries[step] = state.entry;
  };
  int64_t place = end.parent;
  skipped[end.step] = was_skipped(end.step, place);
  put_evidence(end.step, place, end.log_prob, end.base_log_prob);
  for (int64_t step = end.step - 1; step >= 0; --step) {
    const Link& link = sentence.chain[step * rules_.beam + place];
    tokens[step] = link.token;
    place = link.parent;
    skipped[step] = was_skipped(step, place);
    put_evidence(step, place, link.log_prob, link.base_log_prob);
  }
  if (!whole) tokens[end.step] = end.token;
  return end.step + !whole;
}

// Leaves the 2 x beam best extensions in extensions_.
void Beams::extend(const Sentence& sentence, const float* log_probs, const int64_t* tokens, int64_t width, bool last,
                   int64_t first) {
  const int64_t beam = rules_.beam;
  auto total = [&](int64_t place) { return sentence.scores[place / width] + log_probs[place]; };
  find_highest(beam * width, std::min(2 * beam, beam * width), total, best_);
  extensions_.clear();
  // A forced end is certain, whatever the base model predicts.
  const bool forced = last && rules_.force_end != 0;
  for (const Ranked& one : best_) {
    const int64_t token = tokens[one.place];
    const float log_prob = log_probs[one.place];
    extensions_.push_back({one.score, one.place / width, token, last || token == rules_.eos, log_prob,
                           forced ? log_prob : base_log_prob(first + one.place, token, log_prob)});
  }
}

// Merges the extensions that end, among the best `beam` ones, into the finished hypotheses.
void Beams::merge_finished(Sentence& sentence, float divisor) {
  const int64_t beam = rules_.beam;
  auto score = [&](int64_t place) {
    if (place < beam) return sentence.finished[place].score;
    const Extension& one = extensions_[place - beam];
    const float normalised = one.score / divisor;
    // An extension of a placeholder is no hypothesis, however its length scales the score.
    return one.ends && one.score > kPossible ? normalised : normalised + kNever;
  };
  find_highest(2 * beam, beam, score, best_);
  finished_.clear();
  for (const Ranked& one : best_) {
    if (one.place < beam) {
      finished_.push_back(sentence.finished[one.place]);
    } else {
      const Extension& from = extensions_[one.place - beam];
      finished_.push_back({one.score, length_ - 1, from.parent, from.token, from.log_prob, from.base_log_prob});
    }
  }
  sentence.finished.swap(finished_);
}

// Makes the `beam` best extensions that do not end the running hypotheses.
void Beams::keep_running(Sentence& sentence) {
  auto score = [&](int64_t place) {
    return extensions_[place].ends ? extensions_[place].score + kNever : extensions_[place].score;
  };
  find_highest(extensions_.size(), rules_.beam, score, best_);
  for (int64_t b = 0; b < rules_.beam; ++b) {
    const Extension& from = extensions_[best_[b].place];
    sentence.scores[b] = best_[b].score;
    sentence.chain.push_back({from.parent, from.token, from.log_prob, from.base_log_prob});
  }
}

// Whether no running hypothesis can replace a finished one any more.
bool Beams::cannot_improve(const Sentence& sentence, float divisor) const {
  const float worst = sentence.finished.back().score;
  if (!(worst > kPossible)) return false;
  return rules_.beam == 1 || sentence.scores[0] / divisor <= worst;
}

}  // namespace ibidem

// limits: [sentences], the most tokens of each. Returns null when out of memory.
IBIDEM_EXPORT void* ibidem_beams_new(const ibidem::BeamRules* rules, const int64_t* limits, int64_t sentences) {
  return ibidem::noexcept_call([&] { return new ibidem::Beams(*rules, limits, sentences); });
}

IBIDEM_EXPORT void ibidem_beams_free(void* beams) { delete static_cast<ibidem::Beams*>(beams); }

// See Beams::advance. Returns the number of open sentences, -1 when out of memory.
IBIDEM_EXPORT int64_t ibidem_beams_advance(void* beams, const float* log_probs, const int64_t* tokens, int64_t width,
                                           float divisor, int64_t* rows, int64_t* last_tokens) {
  const int64_t answer = ibidem::noexcept_call(
      [&] { return static_cast<ibidem::Beams*>(beams)->advance(log_probs, tokens, width, divisor, rows, last_tokens) + 1; });
  return answer - 1;
}

// skipped: [rows]. See Beams::mask_lagging. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_beams_mask_lagging(void* beams, float margin, uint8_t* skipped) {
  return ibidem::noexcept_call([&] {
    static_cast<ibidem::Beams*>(beams)->mask_lagging(margin, skipped);
    return 1;
  });
}

// out: [open], the numbers of the open sentences.
IBIDEM_EXPORT void ibidem_beams_numbers(const void* beams, int64_t* out) {
  static_cast<const ibidem::Beams*>(beams)->numbers(out);
}

// base_weights: [rows]; distances, entries: [rows, k], the nearest neighbour first; tokens, base_log_probs: [rows, width]. See
// Beams::record_states and Beams::record_candidates. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_beams_record(void* beams, const float* base_weights, const float* distances, const int64_t* entries,
                                      int64_t k, const int64_t* tokens, const float* base_log_probs, int64_t width) {
  return ibidem::noexcept_call([&] {
    auto& hypotheses = *static_cast<ibidem::Beams*>(beams);
    hypotheses.record_states(base_weights, distances, entries, k);
    hypotheses.record_candidates(tokens, base_log_probs, width);
    return 1;
  });
}

// tokens, skipped, evidence, entries: as long as the sentence's limit. See Beams::result.
IBIDEM_EXPORT int64_t ibidem_beams_result(const void* beams, int64_t sentence, int64_t rank, float* score, int* cut,
                                          int64_t* tokens, uint8_t* skipped, ibidem::TokenEvidence* evidence,
                                          int64_t* entries) {
  return static_cast<const ibidem::Beams*>(beams)->result(sentence, rank, score, cut, tokens, skipped, evidence, entries);
}
