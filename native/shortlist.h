// The nearest of many places, found without sorting them all: a bound that enough of them reach.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "codes.h"

namespace ibidem {

// A distance and what it belongs to; sorts by distance.
using Ranked = uint64_t;
inline Ranked rank(int32_t distance, int64_t what) {
  return static_cast<Ranked>(distance) << 32 | static_cast<Ranked>(what);
}
inline int32_t distance_of(Ranked ranked) { return static_cast<int32_t>(ranked >> 32); }
inline int64_t what_of(Ranked ranked) { return static_cast<int64_t>(ranked & 0xffffffff); }

// Keeps the distances of blocks as they come, and the least of each lane in some registers in turn. Every lane has its
// own places, so the n-th of the lanes' minima is reached by at least n places, and by few more if there are lanes enough.
class Shortlist {
 public:
  // Begin anew, with room for so many blocks.
  void clear(int64_t wanted, int64_t blocks) {
    wanted_ = wanted;
    distances_.resize(std::max(distances_.size(), static_cast<size_t>(blocks * kLanes)));
    blocks_.resize(std::max(blocks_.size(), static_cast<size_t>(blocks)));
    count_ = 0;
    registers_ = std::clamp<int64_t>(2 * wanted / kLanes, kFewest, kMost);
    for (int64_t i = 0; i < registers_; ++i) least_[i] = splat(std::numeric_limits<int32_t>::max());
  }

  void add(int64_t block, Ints distances) {
    Ints& least = least_[count_ % registers_];
    least = min(least, distances);
    store(distances_.data() + count_ * kLanes, distances);
    blocks_[count_++] = static_cast<int32_t>(block);
  }

  // Leaves at least as many of the nearest places as wanted, or all, in `places`, in no order.
  void collect(std::vector<Ranked>& places) const {
    places.clear();
    const Ints limit = splat(std::min(bound(), kFarthest - 1) + 1);
    for (int64_t i = 0; i < count_; ++i) {
      const int32_t* distances = distances_.data() + i * kLanes;
      for (Bits near = below(load(distances), limit); near != 0; near &= near - 1) {
        const int lane = __builtin_ctz(near);
        places.push_back(rank(distances[lane], int64_t{blocks_[i]} * kLanes + lane));
      }
    }
  }

 private:
  static constexpr int64_t kFewest = 4, kMost = 64;
  static constexpr int kRounds = 24;

  // By bisection, with nothing to mispredict: sorting the minima took half the time of a search for lists.
  int32_t bound() const {
    if (wanted_ > registers_ * kLanes) return kFarthest;
    int32_t low = -1, high = kFarthest;
    for (int round = 0; round < kRounds && high - low > 1; ++round) {
      const int32_t middle = low + (high - low) / 2;
      const Ints limit = splat(middle + 1);
      int64_t reached = 0;
      for (int64_t i = 0; i < registers_; ++i) reached += __builtin_popcount(below(least_[i], limit));
      if (reached == wanted_) return middle;
      (reached > wanted_ ? high : low) = middle;
    }
    return high;
  }

  std::vector<int32_t> distances_, blocks_;
  Ints least_[kMost];
  int64_t wanted_ = 1, registers_ = 1, count_ = 0;
};

}  // namespace ibidem
