// Attention of one query to keys and values that may lie anywhere.
#pragma once

#include <cstdint>
#include <vector>

namespace ibidem {

// The softmax of scores, in their place; count: a multiple of sixteen.
void make_probabilities(float* scores, int64_t count);

// Where the keys and values of one head begin, `size` floats each, and which of them a query may see.
class Attention {
 public:
  void clear() {
    keys_.clear();
    values_.clear();
  }
  void see(const float* key, const float* value) {
    keys_.push_back(key);
    values_.push_back(value);
  }
  // found: [size], the mean of the values seen, weighted by softmax(query . key); the query is already scaled.
  void attend(const float* query, int64_t size, float* found);

 private:
  void score(const float* query, int64_t size);

  std::vector<const float*> keys_, values_;
  std::vector<float> scores_;
};

}  // namespace ibidem
