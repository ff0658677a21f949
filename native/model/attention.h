// Attention of one query to scattered keys and values.
#pragma once

#include <cstdint>
#include <vector>

namespace ibidem {

// Replaces scores by their softmax; count: a multiple of 16.
void make_probabilities(float* scores, int64_t count);

// Pointers to the keys and values of one head that a query attends to, `size` floats each.
class Attention {
 public:
  void clear() {
    keys_.clear();
    values_.clear();
  }
  void add(const float* key, const float* value) {
    keys_.push_back(key);
    values_.push_back(value);
  }
  // found: [size], the mean of the values weighted by softmax(query . key); the query is already scaled.
  void attend(const float* query, int64_t size, float* found);

 private:
  void score(const float* query, int64_t size);

  std::vector<const float*> keys_, values_;
  std::vector<float> scores_;
};

}  // namespace ibidem
