// A retrieval step whose index is in other processes: queries are made and logits ranked, one function searches for all rows,
// and then the neighbours are weighed and mixed.
#pragma once

#include <atomic>
#include <cstdint>

#include "step/row_mixer.h"
#include "step/state_queries.h"

namespace ibidem {

// A function that searches, and what it reads and writes; the layout is that of ibidem/native/remote.py, which owns the arrays.
// What it leaves is never trusted: it comes from elsewhere, and may still change after the function has returned.
struct RemoteSearch {
  int (*function)(void* handle);  // 0 where it failed
  void* handle;
  float* queries;           // [rows, dimension], where the compactor leaves the queries; not used without a compactor
  uint8_t* modes;           // [rows], of SearchMode
  const float* distances;   // [rows, k], nearest first
  const int64_t* entries;   // [rows, k], -1 where there is none
};

class RemoteStep {
 public:
  // beam: null where only the neighbours are wanted.
  RemoteStep(const RetrievalContext& context, const RemoteSearch& remote, const StateBatch& states, const Retrieved& out,
             const BeamMixture* beam);

  StepStatus run(int threads);

  // Whether this thread is in the function of a remote search. The buffers of that step belong to this thread, so that no
  // other step may begin here.
  static bool is_searching();

 private:
  void prepare();
  bool search();
  SearchMode mode_of(int64_t row) const;
  void finish(int64_t begin, int64_t end);
  bool accept(int64_t row);

  const RetrievalContext& context_;
  const RemoteSearch& remote_;
  const StateBatch& states_;
  const Retrieved& out_;
  const BeamMixture* beam_;
  StateQueries queries_;
  RowMixer mixer_;
  std::atomic<bool> unknown_entry_{false};
};

}  // namespace ibidem
