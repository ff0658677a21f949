// The queries of a step: its states, or what a compactor makes of those that retrieve. Several threads make them in parts.
#pragma once

#include <atomic>
#include <cstdint>

#include "step/retrieval_context.h"

namespace ibidem {

class StateQueries {
 public:
  // compact: [rows, dimension], where the compactor leaves the queries; rows that do not retrieve are left as they are.
  StateQueries(const RetrievalContext& context, const StateBatch& states, float* compact);

  const float* queries() const { return context_.compactor == nullptr ? states_.states : compact_; }

  // Compacts parts of the states until none is left. Returns true to the one thread that finished the last part.
  bool make();

 private:
  int64_t part_count() const;

  const RetrievalContext& context_;
  const StateBatch& states_;
  float* compact_;
  int64_t* searched_rows_;  // rows that retrieve
  int64_t searched_count_ = 0;
  std::atomic<int64_t> next_part_{0}, parts_left_{0};
};

}  // namespace ibidem
