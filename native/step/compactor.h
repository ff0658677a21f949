// Compactors for the few states of a decoding step. No compactor at all is a null pointer: the states are the queries.
#pragma once

#include <cstdint>

namespace ibidem {

class Compactor {
 public:
  virtual ~Compactor() = default;
  // Compacts the given rows of states [.., inputs] into the same rows of out [.., outputs].
  virtual void compact(const float* states, const int64_t* rows, int64_t count, float* out, int64_t threads) const = 0;
};

}  // namespace ibidem
