#include "step/retrieval_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "step/beams.h"
#include "step/values.h"

namespace ibidem {
namespace {

// Rows that one thread compacts at a time, while others continue with the next work.
constexpr int64_t kRowsOfPart = 16;
// Rows of logits that are left for threads which would otherwise wait.
constexpr int64_t kRankedLater = 8;
// The length of stored source vectors.
constexpr float kVectorLength = 127.0f;

float* compact_buffer(const RetrievalContext& context, int64_t rows) {
  static thread_local Scratch<float> buffer;
  return context.compactor == nullptr ? nullptr : buffer.of(rows * context.ivf->coding.dimension);
}

int64_t* row_buffer(int64_t rows) {
  static thread_local Scratch<int64_t> buffer;
  return buffer.of(rows);
}

}  // namespace

// Prefetches what the combiner reads of the neighbours that a thread has found. The table's rows are scattered; they are
// loaded while the next rows are searched for. Source vectors are found by the table, so they follow one row later.
class EntryFetcher {
 public:
  EntryFetcher(const RetrievalContext& context, const Retrieved& out)
      : table_(context.entries), entries_(out.entries), k_(context.settings->k) {}

  // The neighbours of a row are in place.
  void add(int64_t row) {
    const int64_t* entries = entries_ + row * k_;
    for (int64_t i = 0; i < k_; ++i) {
      if (entries[i] < 0) continue;
      __builtin_prefetch(table_.values + entries[i]);
      if (table_.vectors == nullptr) continue;
      __builtin_prefetch(table_.log_probs + entries[i]);
      __builtin_prefetch(table_.sentences + entries[i]);
    }
    finish();
    last_ = row;
  }

  // No other row follows.
  void finish() {
    if (last_ < 0 || table_.vectors == nullptr) return;
    const int64_t* entries = entries_ + last_ * k_;
    for (int64_t i = 0; i < k_; ++i) {
      // `look_up` reports entries beyond the table later.
      if (entries[i] < 0 || entries[i] >= table_.count) continue;
      fetch(table_.vectors + table_.sentences[entries[i]] * table_.dimension, table_.dimension);
    }
  }

 private:
  const EntryTable& table_;
  const int64_t* entries_;
  int64_t k_, last_ = -1;
};

RetrievalStep::RetrievalStep(const RetrievalContext& context, const StateBatch& states, const Retrieved& out,
                             const BeamMixture* beam)
    : context_(context),
      states_(states),
      out_(out),
      beam_(beam),
      compact_(compact_buffer(context, states.rows)),
      searched_rows_(row_buffer(states.rows)),
      groups_(*context.ivf, context.settings->k,
              {compact_ == nullptr ? states.states : compact_, states.rows, states.group_size, states.skipped, out.distances,
               out.entries}) {
  for (int64_t row = 0; row < states.rows; ++row)
    if (!states.skipped[row]) searched_rows_[searched_count_++] = row;
  parts_left_ = part_count();
}

bool RetrievalStep::run(int threads) {
  parallel_run(threads, [&](int, int) { run_thread(); });
  return !unknown_entry_;
}

// The work of each thread. No thread waits while it could rank logits, and each stage begins as soon as its input is there.
void RetrievalStep::run_thread() {
  if (make_queries()) {
    groups_.plan();
    planned_.store(true, std::memory_order_release);
  }
  rank_logits();
  while (!planned_.load(std::memory_order_acquire)) do_other_work();
  IvfSearcher& searcher = IvfSearcher::of_thread(*context_.ivf, context_.alive_mask);
  EntryFetcher fetcher(context_, out_);
  search_groups(searcher, fetcher);
  steal_members(searcher, fetcher);
  fetcher.finish();
  finish();
}

// At least one part, so that some thread finishes the last one.
int64_t RetrievalStep::part_count() const {
  if (compact_ == nullptr) return 1;
  return std::max<int64_t>(1, (searched_count_ + kRowsOfPart - 1) / kRowsOfPart);
}

// Compacts parts of the states until none is left. Returns true to the one thread that finished the last part.
bool RetrievalStep::make_queries() {
  bool last = false;
  for (int64_t part = next_part_++; part < part_count(); part = next_part_++) {
    if (compact_ != nullptr) {
      const int64_t begin = part * kRowsOfPart, count = std::min(kRowsOfPart, searched_count_ - begin);
      context_.compactor->compact(states_.states, searched_rows_ + begin, count, compact_, 1);
    }
    last = --parts_left_ == 0;
  }
  return last;
}

// Ranks most rows now, while their logits are in the caches.
void RetrievalStep::rank_logits() {
  if (beam_ == nullptr) return;
  while (beam_->mixture->unranked() > kRankedLater) beam_->mixture->rank_next();
}

void RetrievalStep::do_other_work() {
  if (beam_ == nullptr || !beam_->mixture->rank_next()) std::this_thread::yield();
}

void RetrievalStep::search_groups(IvfSearcher& searcher, EntryFetcher& fetcher) {
  for (QueryGroup* group = groups_.take_group(); group != nullptr; group = groups_.take_group()) {
    const int64_t row = group->representative();
    groups_.search_representative(searcher, *group, settings_of(row));
    fetcher.add(row);
    search_members(searcher, *group, fetcher);
  }
}

void RetrievalStep::search_members(IvfSearcher& searcher, QueryGroup& group, EntryFetcher& fetcher) {
  for (int64_t row = groups_.take_member(group); row >= 0; row = groups_.take_member(group)) {
    if (!groups_.search_member(searcher, group, row)) groups_.search(searcher, row, settings_of(row));
    fetcher.add(row);
  }
}

// Takes members of groups whose representatives other threads search for, as soon as these are ready.
void RetrievalStep::steal_members(IvfSearcher& searcher, EntryFetcher& fetcher) {
  for (bool waiting = true; waiting;) {
    waiting = false;
    for (QueryGroup& group : groups_.groups()) {
      if (group.all_taken()) continue;
      if (group.ready())
        search_members(searcher, group, fetcher);
      else
        waiting = true;
    }
    if (waiting) do_other_work();
  }
}

const SearchSettings& RetrievalStep::settings_of(int64_t row) const {
  return use_reduced(row) ? *context_.reduced : *context_.settings;
}

// Low-ranked and confident hypotheses gain little from a full search.
bool RetrievalStep::use_reduced(int64_t row) const {
  if (beam_ == nullptr) return false;
  return beam_->score_gaps[row] > beam_->policy.reduced_gap || beam_->mixture->max_prob(row) > beam_->policy.reduced_above;
}

// Weighs and mixes rows until none is left; other threads may still be searching for some of them.
void RetrievalStep::finish() {
  for (int64_t row = next_row_++; row < states_.rows; row = next_row_++) {
    while (!groups_.done(row)) std::this_thread::yield();
    if (!look_up(row)) {
      unknown_entry_ = true;
      continue;
    }
    if (beam_ == nullptr) continue;
    weigh_row(row);
    mix_row(row);
  }
}

bool RetrievalStep::look_up(int64_t row) {
  const int64_t first = row * k();
  const EntryTable& table = context_.entries;
  return look_up_values(table.values, table.count, out_.entries + first, k(), out_.values + first);
}

void RetrievalStep::weigh_row(int64_t row) {
  const int64_t first = row * k();
  const RowWeights weights{out_.base + row, out_.weights + first};
  NeighbourRow neighbours{k(), out_.distances + first, out_.values + first, nullptr, nullptr, nullptr, nullptr};
  if (uses_context()) return weigh_with_context(row, neighbours);
  weigh(*context_.combiner, neighbours, weights);
}

void RetrievalStep::weigh_with_context(int64_t row, NeighbourRow& neighbours) {
  static thread_local Scratch<float> buffer;
  float* base = buffer.of(3 * k() + 2);
  float *stored = base + k(), *distances = stored + k(), *top = distances + k();
  const int64_t* entries = out_.entries + row * k();
  for (int64_t i = 0; i < k(); ++i) {
    base[i] = beam_->mixture->log_prob(row, neighbours.values[i]);
    stored[i] = entries[i] < 0 ? 0.0f : context_.entries.log_probs[entries[i]];
    distances[i] = entries[i] < 0 ? 0.0f : source_distance(row, entries[i]);
  }
  beam_->mixture->top_log_probs(row, top);
  neighbours.base_log_probs = base;
  neighbours.stored_log_probs = stored;
  neighbours.source_distances = distances;
  neighbours.top_log_probs = top;
  weigh(*context_.combiner, neighbours, {out_.base + row, out_.weights + row * k()});
}

// 1 - cosine between the source that is translated and the source of an entry.
float RetrievalStep::source_distance(int64_t row, int64_t entry) const {
  const EntryTable& table = context_.entries;
  const float* mine = beam_->source_vectors + beam_->sentence_numbers[row / states_.group_size] * table.dimension;
  const int8_t* stored = table.vectors + table.sentences[entry] * table.dimension;
  Floats products = splat(0.0f);
  for_components(stored, table.dimension, [&](int64_t i, int count, Floats components) {
    products = fma(load_first(mine + i, count), components, products);
  });
  return 1.0f - sum(products) / kVectorLength;
}

void RetrievalStep::mix_row(int64_t row) {
  beam_->mixture->mix(row, {out_.base, out_.values, out_.weights, k()}, beam_->scores + row * beam_->wanted,
                      beam_->tokens + row * beam_->wanted);
}

}  // namespace ibidem

// Retrieves the neighbours of states [rows, inputs], of which each group_size are of one sentence; a row that begins with NaN
// does not retrieve. For the rest see Retrieved. Returns 1, 0 when out of memory, -1 where an entry has no value.
IBIDEM_EXPORT int ibidem_retrieve(const ibidem::RetrievalContext* context, const float* states, int64_t rows,
                                  int64_t group_size, float* distances, int64_t* entries, int64_t* values, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    std::vector<uint8_t> skipped(rows);
    for (int64_t row = 0; row < rows; ++row) skipped[row] = std::isnan(states[row * context->inputs]);
    const StateBatch batch{states, rows, group_size, skipped.data()};
    const Retrieved out{distances, entries, values, nullptr, nullptr};
    return RetrievalStep(*context, batch, out, nullptr).run(threads) ? 1 : -1;
  });
}

// Retrieves for the hypotheses of `beams` and returns the best tokens of the mixture, as ibidem_best_of_mixture does;
// source_vectors: [sentences of the batch, dimension of source vectors], of length 1, null where the combiner does not need
// them. Returns 1, 0 or -1 as above.
IBIDEM_EXPORT int ibidem_retrieve_and_mix(const ibidem::RetrievalContext* context, const ibidem::RetrievalPolicy* policy,
                                          void* beams, const float* states, int64_t rows, int64_t group_size,
                                          const float* source_vectors, const float* logits, int64_t size,
                                          const uint8_t* banned, int64_t banned_count, int64_t wanted, float* scores,
                                          int64_t* tokens, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    static thread_local Scratch<float> floats;
    static thread_local Scratch<int64_t> numbers;
    static thread_local Scratch<uint8_t> flags;
    auto& hypotheses = *static_cast<Beams*>(beams);
    const int64_t k = context->settings->k;
    float* distances = floats.of(rows * (2 * k + 2 + wanted));
    int64_t* entries = numbers.of(2 * rows * k + rows);
    const Retrieved out{distances, entries, entries + rows * k, distances + 2 * rows * k, distances + rows * k};
    float* score_gaps = out.base + rows;
    uint8_t* skipped = flags.of(rows);
    Mixture mixture(logits, rows, size, size, banned, banned_count, wanted);
    mixture.allocate();
    hypotheses.score_gaps(score_gaps);
    std::fill_n(skipped, rows, 0);
    if (policy->margin < std::numeric_limits<float>::infinity()) hypotheses.mask_lagging(policy->margin, skipped);
    const StateBatch batch{states, rows, group_size, skipped};
    int64_t* sentence_numbers = entries + 2 * rows * k;
    hypotheses.numbers(sentence_numbers);
    const BeamMixture beam{*policy, score_gaps, &mixture, source_vectors, sentence_numbers, wanted, scores, tokens};
    if (!RetrievalStep(*context, batch, out, &beam).run(threads)) return -1;
    float* base_log_probs = score_gaps + rows;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = row * wanted; i < (row + 1) * wanted; ++i) base_log_probs[i] = mixture.log_prob(row, tokens[i]);
    hypotheses.record_states(out.base, distances, entries, k);
    hypotheses.record_candidates(tokens, base_log_probs, wanted);
    return 1;
  });
}
