// One retrieval step: queries from decoder states, their neighbours, the neighbours' weights, and the best tokens of the
// mixture. The step owns the threads and the order of work; the index, the compactor, the combiner and the mixture are
// passive parts that it calls.
#pragma once

#include <atomic>
#include <cstdint>

#include "index/query_groups.h"
#include "step/row_mixer.h"
#include "step/state_queries.h"

namespace ibidem {

class RetrievalStep {
 public:
  // beam: null where only the neighbours are wanted.
  RetrievalStep(const RetrievalContext& context, const StateBatch& states, const Retrieved& out, const BeamMixture* beam);

  StepStatus run(int threads);

 private:
  void run_thread();
  void rank_logits();
  void do_other_work();
  void search_groups(IvfSearcher& searcher, EntryFetcher& fetcher);
  void search_members(IvfSearcher& searcher, QueryGroup& group, EntryFetcher& fetcher);
  void steal_members(IvfSearcher& searcher, EntryFetcher& fetcher);
  const SearchSettings& settings_of(int64_t row) const;
  void finish();

  const RetrievalContext& context_;
  const StateBatch& states_;
  const Retrieved& out_;
  const BeamMixture* beam_;
  StateQueries queries_;
  QueryGroups groups_;
  RowMixer mixer_;
  std::atomic<int64_t> next_row_{0};
  std::atomic<bool> planned_{false}, unknown_entry_{false};
};

}  // namespace ibidem
