#include "step/remote_step.h"

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "index/searcher.h"

namespace ibidem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

thread_local bool searching = false;

}  // namespace

RemoteStep::RemoteStep(const RetrievalContext& context, const RemoteSearch& remote, const StateBatch& states,
                       const Retrieved& out, const BeamMixture* beam)
    : context_(context),
      remote_(remote),
      states_(states),
      out_(out),
      beam_(beam),
      queries_(context, states, remote.queries),
      mixer_(context, states, out, beam) {}

bool RemoteStep::is_searching() { return searching; }

StepStatus RemoteStep::run(int threads) {
  parallel_run(threads, [&](int, int) { prepare(); });
  if (!search()) return StepStatus::kSearchFailed;
  parallel_for(threads, states_.rows, [&](int64_t begin, int64_t end) { finish(begin, end); });
  return unknown_entry_ ? StepStatus::kUnknownEntry : StepStatus::kDone;
}

void RemoteStep::prepare() {
  queries_.make();
  while (beam_ != nullptr && beam_->mixture->rank_next()) {
  }
}

bool RemoteStep::search() {
  for (int64_t row = 0; row < states_.rows; ++row) remote_.modes[row] = static_cast<uint8_t>(mode_of(row));
  searching = true;
  const bool found = remote_.function(remote_.handle) != 0;
  searching = false;
  return found;
}

SearchMode RemoteStep::mode_of(int64_t row) const {
  if (states_.skipped[row] || !usable(queries_.queries() + row * context_.dimension, context_.dimension))
    return SearchMode::kSkip;
  return beam_ != nullptr && beam_->use_reduced(row) ? SearchMode::kReduced : SearchMode::kFull;
}

// Accepts all rows before it finishes the first: their rows of the table are loaded meanwhile.
void RemoteStep::finish(int64_t begin, int64_t end) {
  EntryFetcher fetcher(context_, out_);
  for (int64_t row = begin; row < end; ++row) {
    if (accept(row))
      fetcher.add(row);
    else
      unknown_entry_ = true;
  }
  if (unknown_entry_) return;
  fetcher.finish();
  for (int64_t row = begin; row < end; ++row) mixer_.finish(row);
}

// Copies the neighbours of a row, each number read once, without those whose entry is -1 or whose distance is not a finite
// number of at least 0. False where an entry is not in the table.
bool RemoteStep::accept(int64_t row) {
  const int64_t k = context_.k();
  const volatile float* distances = remote_.distances + row * k;
  const volatile int64_t* entries = remote_.entries + row * k;
  const bool searched = remote_.modes[row] != static_cast<uint8_t>(SearchMode::kSkip);
  int64_t count = 0;
  for (int64_t i = 0; searched && i < k; ++i) {
    const float distance = distances[i];
    const int64_t entry = entries[i];
    if (entry < -1 || entry >= context_.entries.count) return false;
    if (entry < 0 || !(distance >= 0 && distance < kInfinity)) continue;
    out_.distances[row * k + count] = distance;
    out_.entries[row * k + count++] = entry;
  }
  std::fill_n(out_.distances + row * k + count, k - count, kInfinity);
  std::fill_n(out_.entries + row * k + count, k - count, -1);
  return true;
}

}  // namespace ibidem
