// Attention of all tokens of a sentence to each other, by one head.
#pragma once

#include <cstdint>

#include "base/buffer.h"

namespace ibidem {

// A few queries at a time, so that a key or value that was loaded serves all of them.
class SelfAttention {
 public:
  // first: the query of the first token, already scaled; its key and value stand `width` and 2 x `width` behind it, and
  // the next token 3 x `width`. found: that of the first token; the next one's stands `width` behind.
  void attend(const float* first, int64_t tokens, int64_t size, int64_t width, float* found);

 private:
  template <int Queries>
  void attend_some(const float* query, const float* values, int64_t tokens, int64_t size, int64_t width, float* found);

  int64_t padded_ = 0;
  float *keys_ = nullptr, *scores_ = nullptr;
  Scratch<float> keys_room_;    // [size, tokens up to whole pairs of registers]
  Scratch<float> scores_room_;  // [queries, the same]
};

}  // namespace ibidem
