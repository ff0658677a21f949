// The nearest of many places, selected by a bound on the distance instead of by sorting.
#pragma once

#include <algorithm>
#include <vector>

#include "base/sanitized.h"
#include "index/codes.h"

namespace ibidem {

// A distance and the number of an item; sorts by distance.
using Ranked = uint64_t;
inline Ranked rank(int32_t distance, int64_t item) { return static_cast<Ranked>(distance) << 32 | static_cast<Ranked>(item); }
inline int32_t distance_of(Ranked ranked) { return static_cast<int32_t>(ranked >> 32); }
inline int64_t item_of(Ranked ranked) { return static_cast<int64_t>(ranked & 0xffffffff); }

// How many of the numbers are below one; the numbers must be padded to whole registers with the largest value. Unlike a sort
// this has no branches to mispredict.
inline int64_t count_below(const int32_t* numbers, int64_t count, int32_t than) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += kLanes) found += __builtin_popcount(below(load(numbers + i), splat(than)));
  return found;
}

// Holds places and their distances in the order of insertion. No code here branches on distances, which are unpredictable.
class Shortlist {
 public:
  // Empties the list and makes room for this many places.
  void clear(int64_t places) {
    const size_t size = places + kLanes;
    if (distances_.size() < size || kSanitized) {
      distances_.resize(size);
      places_.resize(size);
    }
    count_ = 0;
  }

  // Adds all places of a block.
  void add(int64_t block, Ints distances) {
    store(distances_.data() + count_, distances);
    store(places_.data() + count_, splat(static_cast<int32_t>(block * kLanes)) + counting());
    count_ += kLanes;
  }
  // Adds the places of a block in the lanes of these bits.
  void add(int64_t block, Ints distances, Bits lanes) {
    store_some(distances_.data() + count_, distances, lanes);
    store_some(places_.data() + count_, splat(static_cast<int32_t>(block * kLanes)) + counting(), lanes);
    count_ += __builtin_popcount(lanes);
  }

  int64_t count() const { return count_; }
  int32_t place(int64_t i) const { return places_[i]; }

  // The distances of the nearest and of the farthest place.
  int32_t nearest() {
    pad(kFarthest);
    Ints nearest = splat(kFarthest);
    for (int64_t i = 0; i < count_; i += kLanes) nearest = min(nearest, load(distances_.data() + i));
    return least(nearest);
  }
  int32_t farthest() {
    pad(0);
    Ints farthest = splat(0);
    for (int64_t i = 0; i < count_; i += kLanes) farthest = max(farthest, load(distances_.data() + i));
    return largest(farthest);
  }

  // A distance within which `wanted` places lie, and at most an eighth more, or those in its last 128th; all places where
  // there are fewer.
  int32_t bound(int64_t wanted) {
    int32_t low = nearest() - 1, high = low, step = low / 4 + (1 << 8);
    int64_t count = 0;
    while (high < kFarthest - 1 && (count = count_within(high)) < wanted) {
      low = high;
      high = step < kFarthest - 1 - high ? high + step : kFarthest - 1;
      step = std::min(2 * step, kFarthest);
    }
    while (count > wanted + wanted / 8 && high - low > 1 + (high >> 7)) {
      const int32_t middle = low + (high - low) / 2;
      const int64_t reached = count_within(middle);
      (reached >= wanted ? high : low) = middle;
      if (reached >= wanted) count = reached;
    }
    return high;
  }

  // The given distance, or a smaller one within which about `most` places lie where the given one holds more.
  int32_t within(int32_t distance, int64_t most) {
    pad(kFarthest);
    return count_within(distance) > most ? bound(most) : distance;
  }

  // Appends all places from one distance to another to `places`; first, last: the range of insertion, in whole blocks.
  void collect(int32_t from, int32_t to, int64_t first, int64_t last, std::vector<Ranked>& places) {
    const int64_t found = select(from, to, first, last);
    const size_t before = places.size();
    places.resize(before + found);
    for (int64_t i = 0; i < found; ++i) places[before + i] = rank(near_distances_[i], near_places_[i]);
  }

  // Leaves all places up to a distance in `places`, nearest first and equal ones by number. For few places.
  void sort(int32_t to, std::vector<Ranked>& places) {
    const int64_t found = select(0, to, 0, count_);
    store(near_distances_.data() + found, splat(kFarthest));
    places.assign(found, kNone);
    bool equals = false;
    for (int64_t i = 0; i < found; ++i) {
      int64_t order = count_below(near_distances_.data(), found, near_distances_[i]);
      for (; places[order] != kNone; ++order) equals = true;
      places[order] = rank(near_distances_[i], near_places_[i]);
    }
    if (equals) std::sort(places.begin(), places.end());
  }

  // Drops places farther than a distance.
  void keep(int32_t distance) {
    pad(kFarthest);
    const Ints limit = splat(std::min(distance, kFarthest - 1) + 1);
    const int64_t count = count_;
    count_ = 0;
    for (int64_t i = 0; i < count; i += kLanes) {
      const Ints distances = load(distances_.data() + i), places = load(places_.data() + i);
      const Bits near = below(distances, limit);
      store_some(distances_.data() + count_, distances, near);
      store_some(places_.data() + count_, places, near);
      count_ += __builtin_popcount(near);
    }
  }

  // Keeps the `wanted` nearest places; of those at the same distance, the ones that were added first.
  void keep_nearest(int64_t wanted) {
    if (count_ <= wanted) return;
    near_distances_.assign(distances_.begin(), distances_.begin() + count_);
    std::nth_element(near_distances_.begin(), near_distances_.begin() + wanted - 1, near_distances_.end());
    const int32_t last = near_distances_[wanted - 1];
    int64_t equals = wanted;  // places at the last distance that may still be kept
    for (int64_t i = 0; i < count_; ++i) equals -= distances_[i] < last;
    int64_t kept = 0;
    for (int64_t i = 0; i < count_; ++i) {
      if (distances_[i] > last || (distances_[i] == last && equals-- <= 0)) continue;
      distances_[kept] = distances_[i];
      places_[kept++] = places_[i];
    }
    count_ = kept;
  }

 private:
  static constexpr Ranked kNone = ~Ranked{0};

  // Leaves the places from one distance to another in near_places_ with their distances, and returns how many.
  int64_t select(int32_t from, int32_t to, int64_t first, int64_t last) {
    const Ints least = splat(from), limit = splat(std::min(to, kFarthest - 1) + 1);
    near_distances_.resize(distances_.size());
    near_places_.resize(distances_.size());
    int64_t found = 0;
    for (int64_t i = first; i < last; i += kLanes) {
      const Ints distances = load(distances_.data() + i);
      const Bits near = below(distances, limit) & ~below(distances, least);
      store_some(near_distances_.data() + found, distances, near);
      store_some(near_places_.data() + found, load(places_.data() + i), near);
      found += __builtin_popcount(near);
    }
    return found;
  }

  // Pads the distances behind the last one.
  void pad(int32_t distance) { store(distances_.data() + count_, splat(distance)); }

  // How many places lie within a distance.
  int64_t count_within(int32_t distance) const {
    const Ints limit = splat(std::min(distance, kFarthest - 1) + 1);
    const int32_t* distances = distances_.data();
    Ints counts = splat(0);
    for (int64_t i = 0; i < count_; i += kLanes) counts = count_below(counts, load(distances + i), limit);
    return sum(counts);
  }

  std::vector<int32_t> distances_, places_, near_distances_, near_places_;
  int64_t count_ = 0;
};

}  // namespace ibidem
