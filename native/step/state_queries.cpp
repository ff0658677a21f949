#include "step/state_queries.h"

#include <algorithm>

#include "base/buffer.h"

namespace ibidem {
namespace {

// Rows that one thread compacts at a time, while others continue with the next work.
constexpr int64_t kRowsOfPart = 16;

int64_t* row_buffer(int64_t rows) {
  static thread_local Scratch<int64_t> buffer;
  return buffer.of(rows);
}

}  // namespace

StateQueries::StateQueries(const RetrievalContext& context, const StateBatch& states, float* compact)
    : context_(context), states_(states), compact_(compact), searched_rows_(row_buffer(states.rows)) {
  for (int64_t row = 0; row < states.rows; ++row)
    if (!states.skipped[row]) searched_rows_[searched_count_++] = row;
  parts_left_ = part_count();
}

// At least one part, so that some thread finishes the last one.
int64_t StateQueries::part_count() const {
  if (context_.compactor == nullptr) return 1;
  return std::max<int64_t>(1, (searched_count_ + kRowsOfPart - 1) / kRowsOfPart);
}

bool StateQueries::make() {
  bool last = false;
  for (int64_t part = next_part_++; part < part_count(); part = next_part_++) {
    if (context_.compactor != nullptr) {
      const int64_t begin = part * kRowsOfPart, count = std::min(kRowsOfPart, searched_count_ - begin);
      context_.compactor->compact(states_.states, searched_rows_ + begin, count, compact_, 1);
    }
    last = --parts_left_ == 0;
  }
  return last;
}

}  // namespace ibidem
