// The nearest places found so far: at least as many as wanted once that many were added, and never more than fit.
#pragma once

#include <cstdint>

#include "index/codes.h"
#include "index/shortlist.h"

namespace ibidem {

class CandidatePool {
 public:
  void clear(int64_t wanted) {
    wanted_ = wanted;
    most_ = wanted + wanted / 2 + kSpare / 2;
    capacity_ = 2 * wanted + kSpare;
    near_.clear(capacity_);
    worst_ = kFarthest;
  }

  // The distance from which on places need not be added; kFarthest while there are fewer than wanted.
  int32_t worst() const { return worst_; }
  int64_t count() const { return near_.count(); }
  int32_t place(int64_t i) const { return near_.place(i); }

  // Adds the places of a block in the lanes of these bits; distances are not negative.
  void add(int64_t block, Ints distances, Bits lanes) {
    near_.add(block, distances, lanes);
    if (near_.count() + kLanes > capacity_) settle();
  }

  // Drops places that are farther than `wanted` others, and leaves at most `most_`. The bound on the distance alone cannot
  // ensure that: any number of places may lie at the same distance, or within the accuracy of the bound.
  void settle() {
    if (near_.count() < wanted_) return;
    near_.keep(near_.bound(wanted_));
    if (near_.count() > most_) near_.keep_nearest(wanted_);
    worst_ = near_.farthest();
  }

 private:
  static constexpr int64_t kSpare = 128;

  Shortlist near_;
  // wanted_ <= most_ and most_ + kLanes <= capacity_: after settle() another block fits.
  int64_t wanted_ = 0, most_ = 0, capacity_ = 0;
  int32_t worst_ = kFarthest;
};

}  // namespace ibidem
