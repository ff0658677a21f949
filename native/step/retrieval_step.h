// One retrieval step: queries from decoder states, their neighbours, the neighbours' weights, and the best tokens of the
// mixture. The step owns the threads and the order of work; the index, the compactor, the combiner and the mixture are
// passive parts that it calls.
#pragma once

#include <atomic>
#include <cstdint>

#include "index/query_groups.h"
#include "step/combiner.h"
#include "step/compactor.h"
#include "step/mixture.h"

namespace ibidem {

// What a memory stores about its entries and sentences; the layout is that of ibidem/native/step.py, which keeps it alive. All
// but the values are null where the combiner does not need them.
struct EntryTable {
  int64_t count;
  const int64_t* values;      // [count], tokens
  const float* log_probs;     // [count], of the tokens in the base model when they were stored
  const int32_t* sentences;   // [count], rows of `vectors`
  const int8_t* vectors;      // [sentences, dimension], of the sources, 127 long
  int64_t dimension;          // of source vectors
};

// The parts of a memory; the layout is that of ibidem/native/step.py, which keeps them alive.
struct RetrievalContext {
  const Compactor* compactor;  // null: the states are the queries
  int64_t inputs;              // components of a state
  const Ivf* ivf;
  const SearchSettings *settings, *reduced;
  const uint16_t* alive_mask;
  EntryTable entries;
  const Combiner* combiner;
};

// Which hypotheses retrieve, and for which a reduced search is enough; the layout is that of ibidem/native/step.py.
struct RetrievalPolicy {
  float margin;         // a hypothesis with a larger score gap does not retrieve
  float reduced_gap;    // a hypothesis with a larger score gap searches with the reduced settings
  float reduced_above;  // and so does one whose largest probability in the base model is above this
};

struct StateBatch {
  const float* states;  // [rows, inputs]
  int64_t rows;
  int64_t group_size;      // consecutive rows that belong to one sentence
  const uint8_t* skipped;  // [rows], 1 for rows that do not retrieve
};

// What was retrieved; distances, entries, values, weights: [rows, k]; base: [rows]. The last two are null without a mixture.
struct Retrieved {
  float* distances;
  int64_t *entries, *values;
  float *base, *weights;
};

// The mixture of a beam search step: the rows' score gaps and logits, and where the best tokens go.
struct BeamMixture {
  RetrievalPolicy policy;
  const float* score_gaps;  // [rows]
  Mixture* mixture;
  const float* source_vectors;      // of the sentences that are translated, of length 1; null where none is needed
  const int64_t* sentence_numbers;  // [rows / group_size], rows of source_vectors
  int64_t wanted;
  float* scores;    // [rows, wanted]
  int64_t* tokens;  // [rows, wanted]
};

class EntryFetcher;

class RetrievalStep {
 public:
  // beam: null where only the neighbours and their weights are wanted.
  RetrievalStep(const RetrievalContext& context, const StateBatch& states, const Retrieved& out, const BeamMixture* beam);

  // Returns false where an entry was found that has no value.
  bool run(int threads);

 private:
  void run_thread();
  bool make_queries();
  void rank_logits();
  void do_other_work();
  void search_groups(IvfSearcher& searcher, EntryFetcher& fetcher);
  void search_members(IvfSearcher& searcher, QueryGroup& group, EntryFetcher& fetcher);
  void steal_members(IvfSearcher& searcher, EntryFetcher& fetcher);
  const SearchSettings& settings_of(int64_t row) const;
  bool use_reduced(int64_t row) const;
  void finish();
  bool look_up(int64_t row);
  void weigh_row(int64_t row);
  void weigh_with_context(int64_t row, NeighbourRow& neighbours);
  float source_distance(int64_t row, int64_t entry) const;
  bool uses_context() const { return context_.combiner->kind == CombinerKind::kContextual; }
  void mix_row(int64_t row);

  int64_t k() const { return context_.settings->k; }
  int64_t part_count() const;

  const RetrievalContext& context_;
  const StateBatch& states_;
  const Retrieved& out_;
  const BeamMixture* beam_;
  float* compact_ = nullptr;          // [rows, dimension], where there is a compactor
  int64_t* searched_rows_ = nullptr;  // rows that retrieve
  int64_t searched_count_ = 0;
  QueryGroups groups_;
  std::atomic<int64_t> next_part_{0}, parts_left_{0}, next_row_{0};
  std::atomic<bool> planned_{false}, unknown_entry_{false};
};

}  // namespace ibidem
