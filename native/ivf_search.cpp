// Search in an inverted file: lists by the distance of their centroids, as long as they can hold something near.
#include <functional>
#include <limits>

#include "exports.h"
#include "guard.h"
#include "ivf.h"
#include "pool.h"
#include "shortlist.h"
#include "team.h"

namespace ibidem {
namespace {

// As in retrieve/neighbours.py: of longer queries no distance can be trusted.
constexpr double kLargestSquare = 0x1p120;

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
      choose_lists(settings_.probes);
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

  // The list of the nearest centroid in the groups that are looked into.
  int32_t assign(const float* key) {
    code_.set(ivf_.coding, key);
    choose_lists(1);
    return static_cast<int32_t>(what_of(*std::min_element(lists_.begin(), lists_.end())));
  }

 private:
  // Leaves at least `wanted` lists, or all of the nearest groups, in lists_, ranked by the distance of their centroids.
  void choose_lists(int64_t wanted) {
    const int64_t group_blocks = (ivf_.groups + kLanes - 1) / kLanes;
    shortlist_.clear(settings_.groups, group_blocks);
    code_.template measure<0>(ivf_.group_blocks, 0, group_blocks,
                  [&](int64_t block, Ints distances) { shortlist_.add(block, distances); });
    shortlist_.collect(groups_);
    shortlist_.clear(wanted, ivf_.group_offsets[ivf_.groups]);
    for (Ranked ranked : groups_) {
      const int64_t group = what_of(ranked);
      code_.template measure<0>(ivf_.centroid_blocks, ivf_.group_offsets[group], ivf_.group_offsets[group + 1],
                    [&](int64_t block, Ints distances) { shortlist_.add(block, distances); });
    }
    shortlist_.collect(lists_);
  }

  void look_into_lists() {
    pool_.clear(settings_.pool);
    std::make_heap(lists_.begin(), lists_.end(), std::greater<>());
    for (int64_t probes = 0; probes < settings_.probes && !lists_.empty(); ++probes) {
      std::pop_heap(lists_.begin(), lists_.end(), std::greater<>());
      const Ranked nearest = lists_.back();
      lists_.pop_back();
      const float limit = settings_.patience * static_cast<float>(pool_.worst());
      if (pool_.full() && static_cast<float>(distance_of(nearest)) > limit) return;
      if (!lists_.empty()) prefetch(what_of(lists_.front()));
      look_into(what_of(nearest));
    }
  }

  // The next list is known while this one is read, but the hardware cannot guess it.
  void prefetch(int64_t list) const {
    const int8_t* first = ivf_.blocks + ivf_.list_offsets[list] * ivf_.coding.block_bytes();
    for (int64_t byte = 0; byte < std::min(kFirstBytes, ivf_.coding.block_bytes()); byte += 64)
      __builtin_prefetch(first + byte);
  }

  void look_into(int64_t list) {
    code_.template measure<kAhead>(ivf_.blocks, ivf_.list_offsets[list], ivf_.list_offsets[list + 1],
                  [&](int64_t block, Ints distances) {
                    Bits near = below(distances, splat(pool_.worst()));
                    if (near == 0) return;
                    if (live_ != nullptr) near &= live_[block];
                    int32_t lanes[kLanes];
                    store(lanes, distances);
                    for (; near != 0; near &= near - 1) {
                      const int lane = __builtin_ctz(near);
                      pool_.add(lanes[lane], block * kLanes + lane);
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

  static constexpr int64_t kFirstBytes = 1024;
  static constexpr int kAhead = 4;

  Searcher() = default;

  Ivf ivf_;
  SearchSettings settings_;
  const uint16_t* live_;
  CodedQuery<Groups> code_;
  Shortlist shortlist_;
  std::vector<Ranked> groups_, lists_;
  Pool pool_;
  std::vector<Found> found_;
};

template <int Groups>
void search_all(const Ivf& ivf, const SearchSettings& settings, const uint16_t* live, const float* queries,
                int64_t count, float* distances, int64_t* entries, int threads) {
  deal(threads, count, [&] {
    auto& searcher = Searcher<Groups>::of_thread(ivf, settings, live);
    return [&](int64_t i) {
      searcher.search(queries + i * ivf.coding.dimension, distances + i * settings.k, entries + i * settings.k);
    };
  });
}

template <int Groups>
void assign_all(const Ivf& ivf, const SearchSettings& settings, const float* keys, int64_t count, int32_t* lists,
                int threads) {
  share(threads, count, [&](int64_t begin, int64_t end) {
    auto& searcher = Searcher<Groups>::of_thread(ivf, settings, nullptr);
    for (int64_t i = begin; i < end; ++i) lists[i] = searcher.assign(keys + i * ivf.coding.dimension);
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

// keys: [count, dimension]; lists: [count], that of the nearest centroid found.
IBIDEM_EXPORT int ibidem_ivf_assign(const ibidem::Ivf* ivf, const ibidem::SearchSettings* settings, const float* keys,
                                    int64_t count, int32_t* lists, int threads) {
  using namespace ibidem;
  return guard([&] {
    auto assign = ivf->coding.groups() == kUsualGroups ? assign_all<kUsualGroups> : assign_all<0>;
    assign(*ivf, *settings, keys, count, lists, threads);
    return 1;
  });
}

// keys: [count, dimension]; places: [count], where each stands in the blocks.
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
