// The nearest of many places, found without sorting them all: by a bound on the distance that enough of them reach.
#pragma once

#include <algorithm>
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

// Keeps the distances of blocks as they come. Nothing here branches on distances, which nobody can predict.
class Shortlist {
 public:
  // Begin anew, with room for so many blocks.
  void clear(int64_t blocks) {
    if (distances_.size() < static_cast<size_t>(blocks * kLanes)) {
      distances_.resize(blocks * kLanes);
      places_.resize(blocks * kLanes);
      near_distances_.resize((blocks + 1) * kLanes);
      near_places_.resize((blocks + 1) * kLanes);
    }
    count_ = 0;
    least_ = splat(kFarthest);
  }

  void add(int64_t block, Ints distances) {
    least_ = min(least_, distances);
    store(distances_.data() + count_ * kLanes, distances);
    store(places_.data() + count_ * kLanes, splat(static_cast<int32_t>(block * kLanes)) + counting());
    ++count_;
  }

  // The distance of the nearest place.
  int32_t nearest() const { return least(least_); }

  // How many places are so near.
  int64_t reaching(int32_t distance) const {
    const Ints limit = splat(std::min(distance, kFarthest - 1) + 1);
    Ints counts = splat(0);
    for (int64_t i = 0; i < count_; ++i) counts = count_below(counts, load(distances_.data() + i * kLanes), limit);
    return sum(counts);
  }

  // A distance that so many places reach, and hardly one below: within a 128th. Where there are fewer, all reach it.
  int32_t bound(int64_t wanted) const {
    int32_t low = nearest() - 1, high = low, step = low / 4 + (1 << 8);
    while (high < kFarthest - 1 && reaching(high) < wanted) {
      low = high;
      high = step < kFarthest - 1 - high ? high + step : kFarthest - 1;
      step = std::min(2 * step, kFarthest);
    }
    while (high - low > 1 + (high >> 7)) {
      const int32_t middle = low + (high - low) / 2;
      (reaching(middle) >= wanted ? high : low) = middle;
    }
    return high;
  }

  // A distance that so many places reach at most, and hardly one more: the one given, or less.
  int32_t within(int32_t distance, int64_t most) const { return reaching(distance) > most ? bound(most) : distance; }

  int64_t blocks() const { return count_; }

  // Adds all places from one distance to another to `places`, of the blocks from first to last as they came.
  void collect(int32_t from, int32_t to, int64_t first, int64_t last, std::vector<Ranked>& places) {
    const Ints least = splat(from), limit = splat(std::min(to, kFarthest - 1) + 1);
    int64_t found = 0;
    for (int64_t i = first; i < last; ++i) {
      const Ints distances = load(distances_.data() + i * kLanes);
      const Bits near = below(distances, limit) & ~below(distances, least);
      store_some(near_distances_.data() + found, distances, near);
      store_some(near_places_.data() + found, load(places_.data() + i * kLanes), near);
      found += __builtin_popcount(near);
    }
    const size_t before = places.size();
    places.resize(before + found);
    for (int64_t i = 0; i < found; ++i) places[before + i] = rank(near_distances_[i], near_places_[i]);
  }

 private:
  std::vector<int32_t> distances_, places_, near_distances_, near_places_;
  Ints least_;
  int64_t count_ = 0;
};

}  // namespace ibidem
