// Attention of all tokens of a sentence to each other in one head.
#pragma once

#include <cstdint>

#include "base/buffer.h"

namespace ibidem {

// Computes a few queries at a time, so that a loaded key or value is used for all of them.
class SelfAttention {
 public:
  // first: the query of the first token, already scaled; its key and value lie `width` and 2 x `width` behind it, the next
  // token 3 x `width`. found: the result of the first token; the next one lies `width` behind.
  void attend(const float* first, int64_t tokens, int64_t size, int64_t width, float* found);

 private:
  template <int Queries>
  void attend_some(const float* query, const float* values, int64_t tokens, int64_t size, int64_t width, float* found);

  int64_t padded_ = 0;
  float *keys_ = nullptr, *scores_ = nullptr;
  Scratch<float> keys_buffer_;    // [size, tokens padded to pairs of registers]
  Scratch<float> scores_buffer_;  // [queries, tokens padded likewise]
};

}  // namespace ibidem
