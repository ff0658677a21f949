// Search in an inverted file: lists by the distance of their centroids, as long as they can hold something near.
#include <limits>

#include "exports.h"
#include "guard.h"
#include "ivf.h"
#include "pool.h"
#include "residuals.h"
#include "shortlist.h"
#include "team.h"

namespace ibidem {
namespace {

// As in retrieve/neighbours.py: of longer queries no distance can be trusted.
constexpr double kLargestSquare = 0x1p120;
// Queries that a thread takes at once: few enough that all threads are done at about the same time.
constexpr int64_t kLongestRun = 8, kRunsPerThread = 4;

struct Found {
  float distance;
  int32_t entry;
  bool operator<(const Found& other) const {
    return distance != other.distance ? distance < other.distance : entry < other.entry;
  }
};

template <class Key>
Floats load_key(const Key* key);
template <>
Floats load_key(const float* key) {
  return load(key);
}
template <>
Floats load_key(const uint16_t* key) {
  return load_half(key);
}

template <class Key>
float square_distance(const float* query, const Key* key, int64_t dimension) {
  Floats squares[2] = {splat(0.0f), splat(0.0f)};
  int64_t i = 0;
  for (; i + kLanes <= dimension; i += kLanes) {
    const Floats away = load(query + i) - load_key(key + i);
    squares[i / kLanes % 2] = fma(away, away, squares[i / kLanes % 2]);
  }
  if (i < dimension) {
    Key rest[kLanes] = {};
    std::copy(key + i, key + dimension, rest);
    const Floats away = load_first(query + i, static_cast<int>(dimension - i)) - load_key(rest);
    squares[0] = fma(away, away, squares[0]);
  }
  return sum(squares[0] + squares[1]);
}

bool usable(const float* query, int64_t dimension) {
  double square = 0;
  for (int64_t i = 0; i < dimension; ++i) square += static_cast<double>(query[i]) * query[i];
  return square < kLargestSquare;
}

template <int Groups>
class Searcher {
 public:
  // The searcher of this thread, which keeps its room from one call to the next.
  __attribute__((noinline)) static Searcher& of_thread(const Ivf& ivf, const SearchSettings& settings, const uint16_t* live) {
    static thread_local Searcher searcher;
    searcher.ivf_ = ivf;
    searcher.settings_ = settings;
    searcher.live_ = live;
    return searcher;
  }

  // distances, entries: [k], inf and -1 where there is no neighbour.
  void search(const float* query, float* distances, int64_t* entries) {
    found_.clear();
    if (usable(query, ivf_.coding.dimension)) {
      code_.set(ivf_.coding, query);
      measure_centroids();
      look_into_lists();
      if (ivf_.key_bytes == 2)
        refine(query, static_cast<const uint16_t*>(ivf_.keys));
      else
        refine(query, static_cast<const float*>(ivf_.keys));
    }
    const size_t wanted = static_cast<size_t>(settings_.k), count = std::min(wanted, found_.size());
    std::partial_sort(found_.begin(), found_.begin() + count, found_.end());
    for (size_t i = 0; i < wanted; ++i) {
      distances[i] = i < count ? found_[i].distance : std::numeric_limits<float>::infinity();
      entries[i] = i < count ? found_[i].entry : -1;
    }
  }

  // The nearest centroid in the groups that are looked into: its distance and its list.
  Ranked assign(const float* key) {
    code_.set(ivf_.coding, key);
    measure_centroids();
    shortlist_.collect(shortlist_.nearest(), shortlist_.nearest(), lists_);
    return lists_.front();
  }

 private:
  // Leaves the distances of the centroids of the nearest groups in shortlist_.
  void measure_centroids() {
    const int64_t group_blocks = (ivf_.groups + kLanes - 1) / kLanes;
    const auto keep = [&](int64_t block, Ints distances) { shortlist_.add(block, distances); };
    shortlist_.clear(group_blocks);
    measure<Groups>(code_, ivf_.coding, ivf_.group_blocks, group_blocks, [](int64_t i) { return i; }, keep);
    shortlist_.collect(0, shortlist_.bound(settings_.groups), groups_);
    shortlist_.clear(groups_.size());
    const auto group = [&](int64_t i) { return what_of(groups_[i]); };
    measure<Groups>(code_, ivf_.coding, ivf_.centroid_blocks, groups_.size(), group, keep);
  }

  // The nearest lists in rounds, each as long as all before it: few of them show how near the neighbours are, and spare
  // most queries the rest. Then all others that may hold something near, as they lie: by now this changes little.
  void look_into_lists() {
    pool_.clear(settings_.pool);
    query_.set(code_, ivf_.coding);
    const int32_t bound = shortlist_.bound(std::min(settings_.probes, kSorted));
    shortlist_.collect(0, bound, lists_);
    std::sort(lists_.begin(), lists_.end());
    plan();
    size_t begin = 0;
    for (size_t end = kFirstRound; begin < lists_.size(); begin = end, end *= 2) {
      if (distance_of(lists_[begin]) > limit()) return;
      look_into(begin, std::min(end, lists_.size()));
    }
    if (settings_.probes <= kSorted) return;
    int32_t limit = this->limit();
    if (shortlist_.reaching(limit) > settings_.probes) limit = shortlist_.bound(settings_.probes);
    shortlist_.collect(bound + 1, limit, lists_);
    plan();
    look_into(0, lists_.size());
  }

  // Lists that are farther hold nothing near enough.
  int32_t limit() const {
    if (!pool_.full()) return kFarthest;
    const float limit = settings_.patience * static_cast<float>(pool_.worst());
    return limit < kFarthest ? static_cast<int32_t>(limit) : kFarthest;
  }

  // Leaves the blocks of lists_ in stops_, and where each list begins there in begins_.
  void plan() {
    begins_.resize(lists_.size() + 1);
    begins_[0] = 0;
    for (size_t i = 0; i < lists_.size(); ++i) {
      const int32_t* offsets = ivf_.list_offsets + what_of(lists_[i]);
      begins_[i + 1] = begins_[i] + (offsets[1] - offsets[0]);
    }
    stops_.resize(begins_.back());
    for (size_t i = 0; i < lists_.size(); ++i) {
      const int64_t list = what_of(lists_[i]);
      Stop stop = query_.stop(ivf_.list_offsets[list], distance_of(lists_[i]), ivf_.steps[list]);
      for (size_t at = begins_[i]; at < begins_[i + 1]; ++at, ++stop.block) stops_[at] = stop;
    }
  }

  // The lists from begin to end of those planned.
  void look_into(size_t begin, size_t end) {
    query_.measure(ivf_.blocks, stops_, begins_[begin], begins_[end], [&](int64_t block, Ints distances) {
      Bits near = below(distances, splat(pool_.worst()));
      if (near == 0) return;
      if (live_ != nullptr) near &= live_[block];
      int32_t lanes[kLanes];
      store(lanes, distances);
      for (; near != 0; near &= near - 1) {
        const int lane = __builtin_ctz(near);
        pool_.add(std::max(0, lanes[lane]), block * kLanes + lane);
      }
    });
  }

  template <class Key>
  void refine(const float* query, const Key* keys) {
    const int64_t dimension = ivf_.coding.dimension;
    for (size_t i = 0; i < pool_.count(); ++i) {
      const char* key = reinterpret_cast<const char*>(keys + pool_.place(i) * dimension);
      for (int64_t byte = 0; byte < std::min<int64_t>(kFirstBytes, dimension * sizeof(Key)); byte += 64)
        __builtin_prefetch(key + byte);
      __builtin_prefetch(ivf_.entries + pool_.place(i));
    }
    for (size_t i = 0; i < pool_.count(); ++i) {
      const int64_t place = pool_.place(i);
      found_.push_back({square_distance(query, keys + place * dimension, dimension), ivf_.entries[place]});
    }
  }

  static constexpr int64_t kSorted = 32, kFirstBytes = 1024;
  static constexpr size_t kFirstRound = 4;

  Searcher() = default;

  Ivf ivf_;
  SearchSettings settings_;
  const uint16_t* live_;
  Coded code_;
  ResidualQuery<Groups / 2> query_;
  Shortlist shortlist_;
  std::vector<Ranked> groups_, lists_;
  std::vector<Stop> stops_;
  std::vector<size_t> begins_;
  Pool pool_;
  std::vector<Found> found_;
};

template <int Groups>
void search_all(const Ivf& ivf, const SearchSettings& settings, const uint16_t* live, const float* queries,
                int64_t count, float* distances, int64_t* entries, int threads) {
  // Neighbouring queries are hypotheses of one sentence, and what they read is the same in part: one thread takes some.
  const int64_t run = std::clamp<int64_t>(count / (kRunsPerThread * threads), 1, kLongestRun);
  deal(threads, (count + run - 1) / run, [&] {
    auto& searcher = Searcher<Groups>::of_thread(ivf, settings, live);
    return [&](int64_t number) {
      for (int64_t i = number * run; i < std::min(count, (number + 1) * run); ++i)
        searcher.search(queries + i * ivf.coding.dimension, distances + i * settings.k, entries + i * settings.k);
    };
  });
}

template <int Groups>
void assign_all(const Ivf& ivf, const SearchSettings& settings, const float* keys, int64_t count, int32_t* lists,
                int32_t* distances, int threads) {
  share(threads, count, [&](int64_t begin, int64_t end) {
    auto& searcher = Searcher<Groups>::of_thread(ivf, settings, nullptr);
    for (int64_t i = begin; i < end; ++i) {
      const Ranked nearest = searcher.assign(keys + i * ivf.coding.dimension);
      lists[i] = static_cast<int32_t>(what_of(nearest));
      distances[i] = distance_of(nearest);
    }
  });
}

// The dimension of compact keys is worth code of its own.
constexpr int kUsualGroups = 16;

}  // namespace
}  // namespace ibidem

// queries: [count, dimension]; live: one bit for each place, 16 a block, 0 where an entry is to be passed over, or null;
// distances, entries: [count, k]. 0 where there is no room.
IBIDEM_EXPORT int ibidem_ivf_search(const ibidem::Ivf* ivf, const ibidem::SearchSettings* settings,
                                    const uint16_t* live, const float* queries, int64_t count, float* distances,
                                    int64_t* entries, int threads) {
  using namespace ibidem;
  return guard([&] {
    auto search = ivf->coding.groups() == kUsualGroups ? search_all<kUsualGroups> : search_all<0>;
    search(*ivf, *settings, live, queries, count, distances, entries, threads);
    return 1;
  });
}

// keys: [count, dimension]; lists, distances: [count], of the nearest centroid found, distances in squared codes.
IBIDEM_EXPORT int ibidem_ivf_assign(const ibidem::Ivf* ivf, const ibidem::SearchSettings* settings, const float* keys,
                                    int64_t count, int32_t* lists, int32_t* distances, int threads) {
  using namespace ibidem;
  return guard([&] {
    auto assign = ivf->coding.groups() == kUsualGroups ? assign_all<kUsualGroups> : assign_all<0>;
    assign(*ivf, *settings, keys, count, lists, distances, threads);
    return 1;
  });
}

// Centroids into blocks of codes; keys: [count, dimension]; places: [count], where each stands in the blocks.
IBIDEM_EXPORT void ibidem_ivf_pack(const ibidem::Coding* coding, const float* keys, int64_t count,
                                   const int64_t* places, int8_t* blocks, int threads) {
  using namespace ibidem;
  share(threads, count, [&](int64_t begin, int64_t end) {
    Coded code;
    for (int64_t i = begin; i < end; ++i) {
      code.set(*coding, keys + i * coding->dimension);
      code.write(*coding, blocks + places[i] / kLanes * coding->block_bytes(), places[i] % kLanes);
    }
  });
}

// Keys into blocks of residuals, where no key is yet; keys: [count, dimension]; lists, places: [count].
IBIDEM_EXPORT void ibidem_ivf_pack_residuals(const ibidem::Ivf* ivf, const float* keys, int64_t count,
                                             const int32_t* lists, const int64_t* places, uint8_t* blocks, int threads) {
  using namespace ibidem;
  share(threads, count, [&](int64_t begin, int64_t end) {
    const Coding& coding = ivf->coding;
    const int64_t stride = residual_block_bytes(coding.dimension);
    std::vector<int8_t> centroid(coding.dimension);
    for (int64_t i = begin; i < end; ++i) {
      read_codes(coding, ivf->centroid_blocks + lists[i] / kLanes * coding.block_bytes(), lists[i] % kLanes,
                 centroid.data());
      write_residual(coding, keys + i * coding.dimension, centroid.data(), ivf->steps[lists[i]],
                     blocks + places[i] / kLanes * stride, places[i] % kLanes);
    }
  });
}
