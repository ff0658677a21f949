// The Compact Network applied to the few states of a step.
#pragma once

#include <cstdint>

namespace ibidem {

class Compactor {
 public:
  virtual ~Compactor() = default;
  // x: [.., inputs]; out: [.., outputs]. Of the rows those are compacted whose numbers are given.
  virtual void apply(const float* x, const int64_t* rows, int64_t count, float* out, int64_t threads) const = 0;
};

}  // namespace ibidem
