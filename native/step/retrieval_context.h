// The data of a retrieval step: the parts of a memory, the states, and where the results go. Plain structures, which the
// classes of a step share.
#pragma once

#include <cstdint>

#include "index/ivf.h"
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
  int64_t inputs, dimension;   // components of a state and of a query
  const Ivf* ivf;              // null where other processes search: see RemoteSearch; then the next three are not used
  const SearchSettings *settings, *reduced;
  const uint16_t* alive_mask;
  EntryTable entries;
  const Combiner* combiner;

  // Neighbours of a row.
  int64_t k() const { return combiner->k; }
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

  // Low-ranked and confident hypotheses gain little from a full search.
  bool use_reduced(int64_t row) const {
    return score_gaps[row] > policy.reduced_gap || mixture->max_prob(row) > policy.reduced_above;
  }
};

// The outcome of a step as the library returns it; 0 stands for out of memory. kNested: the step was called by the function of
// a remote search.
enum class StepStatus : int { kNested = -3, kSearchFailed = -2, kUnknownEntry = -1, kDone = 1 };

}  // namespace ibidem
