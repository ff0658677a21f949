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

  // The candidates of the last `search`, as entries.
  const std::vector<int32_t>& candidates() const { return candidates_; }

  // Finds the k nearest of these candidates, by exact distance.
  void search_among(const std::vector<int32_t>& candidates, const float* query, int64_t k, float* distances, int64_t* entries);

 protected:
  struct Neighbour {
    float distance;
    int32_t entry;
    bool operator<(const Neighbour& other) const {
      return distance != other.distance ? distance < other.distance : entry < other.entry;
    }
  };

  IvfSearcher() = default;

  // Leaves the entries of the nearest keys by codes in candidates_, each once.
  virtual void collect_candidates(const float* query, const SearchSettings& settings) = 0;

  // Prefetches a key, or as much of it as the hardware needs to continue. Inlined as `fetch` is.
  template <int When>
  __attribute__((always_inline)) void fetch_key(const void* key) const {
    fetch<When>(key, std::min(kFirstBytes, ivf_.keys.key_bytes()));
  }

  Ivf ivf_;
  const uint16_t* alive_mask_ = nullptr;
  std::vector<int32_t> candidates_;

 private:
  static constexpr int64_t kFirstBytes = 1024;

  void measure_keys(const std::vector<int32_t>& candidates, const float* query);
  void find_nearest(const std::vector<int32_t>& candidates, int64_t k);

  std::vector<const void*> keys_;  // of the candidates
  std::vector<float> shifted_;     // offset - query, for int8 keys
  std::vector<int32_t> measured_;  // distances as the bits of floats: none is negative, so they sort alike
  std::vector<Neighbour> found_;
};

// The squared distance of two vectors in float32.
float square_distance(const float* a, const float* b, int64_t dimension);
// Whether distances of a query are finite: it holds no NaN or infinity and is not too long.
bool usable(const float* query, int64_t dimension);

}  // namespace ibidem
