// The nearest places so far: at least as many as wanted once there are so many, and hardly more.
#pragma once

#include <cstdint>

#include "codes.h"
#include "shortlist.h"

namespace ibidem {

class Pool {
 public:
  void clear(int64_t wanted) {
    wanted_ = wanted;
    room_ = 2 * wanted + kSpare;
    near_.clear(room_);
    worst_ = kFarthest;
  }

  // What is farther need not be added; while there are too few, nothing is.
  int32_t worst() const { return worst_; }
  int64_t count() const { return near_.count(); }
  int32_t place(int64_t i) const { return near_.place(i); }

  // The places of a block in the lanes of these bits; no distance is below zero.
  void add(int64_t block, Ints distances, Bits lanes) {
    near_.add(block, distances, lanes);
    if (near_.count() + kLanes > room_) settle();
  }

  // Drops all that is farther than enough others.
  void settle() {
    if (near_.count() < wanted_) return;
    near_.keep(near_.bound(wanted_));
    worst_ = near_.farthest();
  }

 private:
  static constexpr int64_t kSpare = 128;

  Shortlist near_;
  int64_t wanted_ = 0, room_ = 0;
  int32_t worst_ = kFarthest;
};

}  // namespace ibidem
