// The nearest places so far, sorted.
#pragma once

#include <cstdint>
#include <vector>

#include "codes.h"
#include "shortlist.h"

namespace ibidem {

class Pool {
 public:
  void clear(int64_t capacity) {
    places_.resize(capacity);
    count_ = 0;
    worst_ = kFarthest;
  }
  // Only what is nearer than this gets in.
  int32_t worst() const { return worst_; }
  bool full() const { return count_ == places_.size(); }
  size_t count() const { return count_; }
  int64_t place(size_t i) const { return what_of(places_[i]); }

  void add(int32_t distance, int64_t place) {
    if (distance >= worst_) return;
    const Ranked entry = rank(distance, place);
    size_t i = full() ? count_ - 1 : count_++;
    for (; i > 0 && places_[i - 1] > entry; --i) places_[i] = places_[i - 1];
    places_[i] = entry;
    if (full()) worst_ = distance_of(places_.back());
  }

 private:
  std::vector<Ranked> places_;
  size_t count_ = 0;
  int32_t worst_ = kFarthest;
};

}  // namespace ibidem
