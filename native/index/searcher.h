// Search for one query in an inverted file. A searcher belongs to one thread; its caller owns the threads.
#pragma once

#include <cstdint>
#include <vector>

#include "index/ivf.h"

namespace ibidem {

class IvfSearcher {
 public:
  // Returns this thread's searcher, set to an index. Its buffers are reused from call to call.
  // alive_mask: [blocks], one bit for each place, 0 for an entry that is skipped; null where no entry is.
  static IvfSearcher& of_thread(const Ivf& ivf, const uint16_t* alive_mask);

  virtual ~IvfSearcher() = default;

  // Finds about the k nearest keys; distances, entries: [k], inf and -1 where there are fewer.
  void search(const float* query, const SearchSettings& settings, float* distances, int64_t* entries);

  // The slots of the candidates of the last `search`.
  const std::vector<int32_t>& candidates() const { return slots_; }

  // Finds the k nearest of the keys in the given slots, by exact distance.
  void search_among(const std::vector<int32_t>& slots, const float* query, int64_t k, float* distances, int64_t* entries);

 protected:
  struct Neighbour {
    float distance;
    int32_t entry;
    bool operator<(const Neighbour& other) const {
      return distance != other.distance ? distance < other.distance : entry < other.entry;
    }
  };

  IvfSearcher() = default;

  // Leaves the slots of the nearest keys by codes in slots_, each once.
  virtual void collect_candidates(const float* query, const SearchSettings& settings) = 0;

  // Prefetches the key in a slot, or as much of it as the hardware needs to continue. Inlined as `fetch` is.
  template <int When>
  __attribute__((always_inline)) void fetch_key(int64_t slot) const {
    const int64_t bytes = ivf_.coding.dimension * ivf_.key_bytes;
    fetch<When>(static_cast<const char*>(ivf_.keys) + slot * bytes, std::min(kFirstBytes, bytes));
  }

  Ivf ivf_;
  const uint16_t* alive_mask_ = nullptr;
  std::vector<int32_t> slots_;

 private:
  static constexpr int64_t kFirstBytes = 1024;

  template <class Key>
  void measure_keys(const std::vector<int32_t>& slots, const float* query, const Key* keys);
  void find_nearest(const std::vector<int32_t>& slots, int64_t k);

  std::vector<int32_t> measured_;  // distances as the bits of floats: none is negative, so they sort alike
  std::vector<Neighbour> found_;
};

// The squared distance of two vectors in float32.
float square_distance(const float* a, const float* b, int64_t dimension);
// Whether distances of a query are finite: it holds no NaN or infinity and is not too long.
bool usable(const float* query, int64_t dimension);

}  // namespace ibidem
