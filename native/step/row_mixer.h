// What follows the search for a row: the tokens of its neighbours, their weights, and the best tokens of the mixture.
#pragma once

#include <cstdint>

#include "step/retrieval_context.h"

namespace ibidem {

// Prefetches what the combiner reads of the neighbours that a thread has found. The table's rows are scattered; they are
// loaded while the next rows are searched for. Source vectors are found by the table, so they follow one row later.
class EntryFetcher {
 public:
  EntryFetcher(const RetrievalContext& context, const Retrieved& out)
      : table_(context.entries), entries_(out.entries), k_(context.k()) {}

  // The neighbours of a row are in place.
  void add(int64_t row);
  // No other row follows.
  void finish();

 private:
  const EntryTable& table_;
  const int64_t* entries_;
  int64_t k_, last_ = -1;
};

class RowMixer {
 public:
  // beam: null where only the tokens of the neighbours are wanted.
  RowMixer(const RetrievalContext& context, const StateBatch& states, const Retrieved& out, const BeamMixture* beam)
      : context_(context), states_(states), out_(out), beam_(beam) {}

  // Finishes a row whose neighbours are in place; any thread may call it. False where an entry has no value.
  bool finish(int64_t row) const;

 private:
  bool look_up(int64_t row) const;
  void weigh_row(int64_t row) const;
  void weigh_with_context(int64_t row, NeighbourRow& neighbours) const;
  float source_distance(int64_t row, int64_t entry) const;
  bool uses_context() const { return context_.combiner->kind == CombinerKind::kContextual; }
  void mix_row(int64_t row) const;
  int64_t k() const { return context_.k(); }

  const RetrievalContext& context_;
  const StateBatch& states_;
  const Retrieved& out_;
  const BeamMixture* beam_;
};

}  // namespace ibidem
