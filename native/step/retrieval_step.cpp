#include "step/retrieval_step.h"

#include <thread>

#include "base/buffer.h"
#include "base/parallel.h"

namespace ibidem {
namespace {

// Rows of logits that are left for threads which would otherwise wait.
constexpr int64_t kRankedLater = 8;

float* compact_buffer(const RetrievalContext& context, int64_t rows) {
  static thread_local Scratch<float> buffer;
  return context.compactor == nullptr ? nullptr : buffer.of(rows * context.dimension);
}

}  // namespace

RetrievalStep::RetrievalStep(const RetrievalContext& context, const StateBatch& states, const Retrieved& out,
                             const BeamMixture* beam)
    : context_(context),
      states_(states),
      out_(out),
      beam_(beam),
      queries_(context, states, compact_buffer(context, states.rows)),
      groups_(*context.ivf, context.k(),
              {queries_.queries(), states.rows, states.group_size, states.skipped, out.distances, out.entries}),
      mixer_(context, states, out, beam) {}

StepStatus RetrievalStep::run(int threads) {
  parallel_run(threads, [&](int, int) { run_thread(); });
  return unknown_entry_ ? StepStatus::kUnknownEntry : StepStatus::kDone;
}

// The work of each thread. No thread waits while it could rank logits, and each stage begins as soon as its input is there.
void RetrievalStep::run_thread() {
  if (queries_.make()) {
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
  return beam_ != nullptr && beam_->use_reduced(row) ? *context_.reduced : *context_.settings;
}

// Finishes rows until none is left; other threads may still be searching for some of them.
void RetrievalStep::finish() {
  for (int64_t row = next_row_++; row < states_.rows; row = next_row_++) {
    while (!groups_.done(row)) std::this_thread::yield();
    if (!mixer_.finish(row)) unknown_entry_ = true;
  }
}

}  // namespace ibidem
