// Search in an inverted file: lists by the distance of their centroids, as long as they can hold a near key.
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "index/blocks.h"
#include "index/candidate_pool.h"
#include "index/ivf.h"
#include "index/searcher.h"
#include "index/shortlist.h"

namespace ibidem {
namespace {

// As LARGEST_SQUARE in the retrieve package: distances of longer queries overflow.
constexpr float kLargestSquare = 0x1p120f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The sum of the squares of difference(i, count, components) over the components of a key.
template <class Key, class Difference>
__attribute__((always_inline)) inline float sum_squares(const Key* key, int64_t dimension, Difference difference) {
  Floats squares[2] = {splat(0.0f), splat(0.0f)};
  for_components(key, dimension, [&](int64_t i, int count, Floats components) {
    const Floats one = difference(i, count, components);
    squares[i / kLanes % 2] = fma(one, one, squares[i / kLanes % 2]);
  });
  return sum(squares[0] + squares[1]);
}

// Loads some of 16 numbers; where all are wanted, which the compiler knows, without a mask.
__attribute__((always_inline)) inline Floats load_some(const float* numbers, int count) {
  return count == kLanes ? load(numbers) : load_first(numbers, count);
}

template <class Key>
__attribute__((always_inline)) inline float measure_key(const float* query, const Key* key, int64_t dimension) {
  return sum_squares(key, dimension,
                     [&](int64_t i, int count, Floats components) { return load_some(query + i, count) - components; });
}

// shifted: offset - query.
__attribute__((always_inline)) inline float measure_codes(const float* shifted, const float* step, const int8_t* codes,
                                                          int64_t dimension) {
  return sum_squares(codes, dimension, [&](int64_t i, int count, Floats components) {
    return fma(components, load_some(step + i, count), load_some(shifted + i, count));
  });
}

float dot(const float* a, const float* b, int64_t dimension) {
  Floats products = splat(0.0f);
  for (int64_t i = 0; i < dimension; i += kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes, dimension - i));
    products = fma(load_first(a + i, count), load_first(b + i, count), products);
  }
  return sum(products);
}

// Quads: those of the dimension where they are known at compile time, so that the query stays in registers, else 0.
template <int Quads>
class Searcher final : public IvfSearcher {
 public:
  __attribute__((noinline)) static Searcher& of_thread(const Ivf& ivf, const uint16_t* alive_mask) {
    static thread_local Searcher searcher;
    searcher.ivf_ = ivf;
    searcher.alive_mask_ = alive_mask;
    return searcher;
  }

  // Returns the list of the nearest centroid in the groups that are opened.
  int64_t assign(const float* key, const SearchSettings& settings) {
    settings_ = settings;
    set(key);
    open_regions();
    open_groups(0, near_groups_.bound(settings_.groups));
    lists_.clear();
    const int32_t nearest = near_lists_.nearest();
    near_lists_.collect(nearest, nearest, 0, near_lists_.count(), lists_);
    return item_of(lists_.front());
  }

  // Returns a second list for a key that `assign` put into a first one, or -1; centroids: [lists, dimension], in units of
  // codes. A query misses the key in its first list when the key's residual there points towards the query. So the second
  // list is near and has a residual that is orthogonal to the first (SOAR, Sun et al. 2023).
  int64_t assign_second(const float* key, int64_t first, const float* centroids) {
    const int64_t dimension = ivf_.coding.dimension;
    residuals_.resize(2 * dimension);
    float *first_residual = residuals_.data(), *residual = first_residual + dimension;
    const float square = subtract(key, centroids + first * dimension, first_residual);
    lists_.clear();
    near_lists_.collect(0, near_lists_.bound(kSecondLists + 1), 0, near_lists_.count(), lists_);
    int64_t best = -1;
    float least = kInfinity;
    for (const Ranked list : lists_) {
      if (item_of(list) == first) continue;
      float loss = subtract(key, centroids + item_of(list) * dimension, residual);
      const float parallel = dot(first_residual, residual, dimension);
      if (square > 0) loss += parallel * parallel / square;
      if (!(loss < least)) continue;
      least = loss;
      best = item_of(list);
    }
    return best;
  }

 private:
  static constexpr int64_t kLeastRegions = 64, kGroupsPerRegion = 3, kFirstGroups = 32, kSorted = 32;
  static constexpr size_t kFirstRound = 4;
  // Blocks that are scanned before there is any candidate.
  static constexpr int64_t kFirstBlocks = 12;
  static constexpr int32_t kNearest = std::numeric_limits<int32_t>::min();
  // Lists among which a key's second one is chosen.
  static constexpr int64_t kSecondLists = 8;
  // Groups that may hold a list within prune_ratio: their centroids lie on all sides of their centre.
  static constexpr float kGroupReach = 1.3f;

  Searcher() = default;

  void collect_candidates(const float* query, const SearchSettings& settings) override {
    settings_ = settings;
    set(query);
    pool_.clear(settings_.rerank);
    probe_lists();
    collect_entries();
  }

  // Leaves key - centroid in `residual`, in units of codes, and returns its square.
  float subtract(const float* key, const float* centroid, float* residual) const {
    const Coding& coding = ivf_.coding;
    for (int64_t i = 0; i < coding.dimension; ++i) residual[i] = (key[i] - coding.mean[i]) * coding.scale - centroid[i];
    return dot(residual, residual, coding.dimension);
  }

  void set(const float* query) {
    code_.set(ivf_.coding, query);
    query_.set(code_, ivf_.coding);
  }

  // Leaves the groups of the nearest regions in near_groups_.
  void open_regions() {
    const int64_t blocks = (ivf_.regions + kLanes - 1) / kLanes;
    near_regions_.clear(blocks * kLanes);
    near_groups_.clear(ivf_.regions * kLanes);
    near_lists_.clear(ivf_.regions * kLanes * kLanes);
    measure<Quads>(code_, ivf_.coding, ivf_.region_blocks, blocks,
                   [&](int64_t block, Ints distances) { near_regions_.add(block, distances); });
    open(near_regions_, 0, near_regions_.bound(std::max(kLeastRegions, settings_.groups / kGroupsPerRegion)), ivf_.group_blocks,
         near_groups_);
  }

  // Adds the lists of the groups from one distance to another to near_lists_.
  void open_groups(int32_t from, int32_t to) { open(near_groups_, from, to, ivf_.centroid_blocks, near_lists_); }

  // Adds the points of all blocks whose parents lie from one distance to another to `children`.
  void open(Shortlist& parents, int32_t from, int32_t to, const uint8_t* blocks, Shortlist& children) {
    opened_.clear();
    parents.collect(from, to, 0, parents.count(), opened_);
    const int64_t bytes = block_bytes<kCoarseBits>(ivf_.coding.dimension);
    blocks_.clear(opened_.size());
    for (const Ranked parent : opened_) {
      blocks_.add(static_cast<int32_t>(item_of(parent)), distance_of(parent));
      fetch<kLater>(blocks + item_of(parent) * bytes, bytes);
    }
    query_.template measure<kCoarseBits>(
        blocks, blocks_, [&](size_t i, Ints distances) { children.add(blocks_.block(i), max(splat(0), distances)); });
  }

  // Probes the nearest lists of the nearest groups in rounds, each as long as all before it: a few lists show how near the
  // neighbours are, and most queries need no more. Then probes, in no order, all other lists that may hold something near, of
  // groups that may hold such lists: at that point the order changes little.
  void probe_lists() {
    open_regions();
    const int32_t first_groups = near_groups_.bound(std::min(settings_.groups, kFirstGroups));
    open_groups(0, first_groups);
    const int64_t opened = near_lists_.count();
    const int32_t first_lists = near_lists_.bound(std::min(settings_.nprobe, kSorted));
    near_lists_.sort(first_lists, lists_);
    size_t begin = 0;
    for (size_t end = kFirstRound; begin < lists_.size(); begin = end, end *= 2) {
      if (distance_of(lists_[begin]) > limit(settings_.prune_ratio)) break;
      scan(begin, std::min(end, lists_.size()));
    }
    // Most of the present candidates stay: their entries and then their keys are loaded while the rest is scanned.
    fetch_entries();
    open_groups(first_groups + 1, near_groups_.within(limit(kGroupReach * settings_.prune_ratio), settings_.groups));
    const int32_t last = near_lists_.within(limit(settings_.prune_ratio), settings_.nprobe);
    lists_.clear();
    near_lists_.collect(first_lists + 1, last, 0, opened, lists_);
    near_lists_.collect(0, last, opened, near_lists_.count(), lists_);
    for (int64_t i = 0; i < pool_.count(); ++i) fetch_key<kLater>(ivf_.keys.find(ivf_.entries[pool_.place(i)]));
    scan(0, lists_.size());
  }

  void fetch_entries() const {
    for (int64_t i = 0; i < pool_.count(); ++i) fetch(ivf_.entries + pool_.place(i), sizeof(int32_t));
  }

  // Leaves the entries in the pool in candidates_, each once: a key may have been found in both of its places.
  void collect_entries() {
    fetch_entries();
    candidates_.assign(pool_.count() + kLanes, -1);
    size_t count = 0;
    for (int64_t i = 0; i < pool_.count(); ++i) {
      const int32_t entry = ivf_.entries[pool_.place(i)];
      Bits known = 0;
      for (size_t j = 0; j < count; j += kLanes) known |= equal(load(candidates_.data() + j), splat(entry));
      candidates_[count] = known == 0 ? entry : -1;
      count += known == 0;
    }
    candidates_.resize(count);
  }

  // The distance beyond which lists or blocks are skipped.
  int32_t limit(float prune_ratio) const {
    const float limit = prune_ratio * static_cast<float>(pool_.worst());
    return limit < kFarthest ? static_cast<int32_t>(limit) : kFarthest;
  }

  // Scans the lists from begin to end of lists_: the blocks of means select blocks of keys. All means are prefetched before
  // the first is read.
  void scan(size_t begin, size_t end) {
    const int64_t bytes = block_bytes<kFineBits>(ivf_.coding.dimension);
    size_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      const ListInfo& list = ivf_.lists[item_of(lists_[i])];
      count += list.end_means - list.first_means;
    }
    means_.clear(count);
    first_blocks_.clear();
    for (size_t i = begin; i < end; ++i) {
      const ListInfo& list = ivf_.lists[item_of(lists_[i])];
      int32_t first = list.first_block;
      for (int32_t means = list.first_means; means < list.end_means; ++means, first += kLanes) {
        means_.add(means, distance_of(lists_[i]));
        first_blocks_.push_back(first);
        fetch<kLater>(ivf_.block_means + means * bytes, bytes);
      }
    }
    if (pool_.worst() < kFarthest)
      scan_blocks_below(limit(settings_.block_prune_ratio), count * kLanes);
    else
      scan_nearest_blocks(count * kLanes);
    pool_.settle();
  }

  // Scans the blocks up to a distance, of at most `most`. Each block is prefetched as soon as it is selected, so that loads
  // overlap with the selection.
  void scan_blocks_below(int32_t distance, size_t most) {
    const int64_t bytes = block_bytes<kFineBits>(ivf_.coding.dimension);
    blocks_.clear(most);
    const Ints beyond = splat(distance + 1);
    query_.template measure<kFineBits>(ivf_.block_means, means_, [&](size_t i, Ints distances) {
      size_t selected = blocks_.count();
      blocks_.add(splat(first_blocks_[i]) + counting(), distances, below(distances, beyond));
      for (; selected < blocks_.count(); ++selected) fetch<kLater>(ivf_.blocks + blocks_.block(selected) * bytes, bytes);
    });
    scan_blocks();
  }

  // Scans the nearest of at most `most` blocks, and then those of the others that the candidates found by then do not exclude.
  // Without candidates every block would have to be scanned.
  void scan_nearest_blocks(size_t most) {
    all_blocks_.clear(most);
    near_blocks_.clear(most);
    query_.template measure<kFineBits>(ivf_.block_means, means_, [&](size_t i, Ints distances) {
      const Bits there = below(distances, splat(kFarthest));
      const Ints blocks = splat(first_blocks_[i]) + counting();
      all_blocks_.add(blocks, distances, there);
      near_blocks_.add(0, max(splat(0), distances), there);
    });
    const int32_t nearest = near_blocks_.bound(kFirstBlocks);
    scan_blocks_between(kNearest, nearest, most);
    pool_.settle();
    scan_blocks_between(nearest + 1, limit(settings_.block_prune_ratio), most);
  }

  // Scans the blocks in all_blocks_, at most `most`, from one distance to another.
  void scan_blocks_between(int32_t from, int32_t to, size_t most) {
    const int64_t bytes = block_bytes<kFineBits>(ivf_.coding.dimension);
    blocks_.clear(most);
    blocks_.add(all_blocks_, from, to);
    for (size_t i = 0; i < blocks_.count(); ++i) fetch<kLater>(ivf_.blocks + blocks_.block(i) * bytes, bytes);
    scan_blocks();
  }

  // Adds the keys of the blocks in blocks_ to the candidates.
  void scan_blocks() {
    query_.template measure<kFineBits>(ivf_.blocks, blocks_, [&](size_t i, Ints distances) {
      const Ints positive = max(splat(0), distances);
      Bits near = below(positive, splat(pool_.worst()));
      if (alive_mask_ != nullptr) near &= alive_mask_[blocks_.block(i)];
      pool_.add(blocks_.block(i), positive, near);
    });
  }

  SearchSettings settings_;
  Coded code_;
  BlockQuery<Quads * kQuad> query_;
  Shortlist near_regions_, near_groups_, near_lists_, near_blocks_;
  std::vector<Ranked> opened_, lists_;
  BlockList means_, blocks_, all_blocks_;
  std::vector<int32_t> first_blocks_;  // for each of means_: the block of keys whose mean is in its first lane
  CandidatePool pool_;
  std::vector<float> residuals_;
};

// Calls call(quads) with a constant: those of 64 and of 96 dimensions, the usual sizes of compact keys, have code of their own;
// 0 stands for any other number.
template <class Call>
__attribute__((always_inline)) inline decltype(auto) with_quads(int64_t quads, Call call) {
  switch (quads) {
    case 16:
      return call(std::integral_constant<int, 16>());
    case 24:
      return call(std::integral_constant<int, 24>());
    default:
      return call(std::integral_constant<int, 0>());
  }
}

// seconds: null where one list is enough.
template <int Quads>
void assign_all(const Ivf& ivf, const SearchSettings& settings, const float* keys, int64_t count, int32_t* lists,
                int32_t* seconds, int threads) {
  const int64_t dimension = ivf.coding.dimension, places = ivf.regions * kLanes * kLanes;
  std::vector<float> centroids(seconds == nullptr ? 0 : places * dimension);
  parallel_for(threads, centroids.size() / dimension, [&](int64_t begin, int64_t end) {
    for (int64_t list = begin; list < end; ++list) read_centroid(ivf, list, centroids.data() + list * dimension);
  });
  parallel_for(threads, count, [&](int64_t begin, int64_t end) {
    auto& searcher = Searcher<Quads>::of_thread(ivf, nullptr);
    for (int64_t i = begin; i < end; ++i) {
      const float* key = keys + i * dimension;
      lists[i] = static_cast<int32_t>(searcher.assign(key, settings));
      if (seconds != nullptr) seconds[i] = static_cast<int32_t>(searcher.assign_second(key, lists[i], centroids.data()));
    }
  });
}

}  // namespace

float square_distance(const float* a, const float* b, int64_t dimension) { return measure_key(a, b, dimension); }

bool usable(const float* query, int64_t dimension) { return dot(query, query, dimension) < kLargestSquare; }

IvfSearcher& IvfSearcher::of_thread(const Ivf& ivf, const uint16_t* alive_mask) {
  return with_quads(ivf.coding.quads(), [&](auto quads) -> IvfSearcher& {
    return Searcher<decltype(quads)::value>::of_thread(ivf, alive_mask);
  });
}

void IvfSearcher::search(const float* query, const SearchSettings& settings, float* distances, int64_t* entries) {
  collect_candidates(query, settings);
  search_among(candidates_, query, settings.k, distances, entries);
}

void IvfSearcher::search_among(const std::vector<int32_t>& candidates, const float* query, int64_t k, float* distances,
                               int64_t* entries) {
  measure_keys(candidates, query);
  find_nearest(candidates, k);
  for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
    distances[i] = i < found_.size() ? found_[i].distance : kInfinity;
    entries[i] = i < found_.size() ? found_[i].entry : -1;
  }
}

void IvfSearcher::measure_keys(const std::vector<int32_t>& candidates, const float* query) {
  const Keys& keys = ivf_.keys;
  keys_.resize(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    keys_[i] = keys.find(candidates[i]);
    fetch_key<kSoon>(keys_[i]);
  }
  if (keys.component_bytes == 1) {
    shifted_.resize(keys.dimension);
    for (int64_t i = 0; i < keys.dimension; ++i) shifted_[i] = keys.offset[i] - query[i];
  }
  measured_.resize(candidates.size() + kLanes);
  with_component_type(keys, [&](auto zero) {
    const auto measure_all = [&](int64_t dimension) __attribute__((always_inline)) {
      for (size_t i = 0; i < keys_.size(); ++i) {
        const auto* key = static_cast<const decltype(zero)*>(keys_[i]);
        float distance;
        if constexpr (sizeof(zero) == 1)
          distance = measure_codes(shifted_.data(), keys.step, key, dimension);
        else
          distance = measure_key(query, key, dimension);
        std::memcpy(&measured_[i], &distance, sizeof(distance));
      }
    };
    // With a constant the compiler unrolls the loop over the components.
    with_quads(keys.dimension / kQuad, [&](auto quads) {
      measure_all(decltype(quads)::value > 0 ? decltype(quads)::value * kQuad : keys.dimension);
    });
  });
  store(measured_.data() + candidates.size(), splat(std::numeric_limits<int32_t>::max()));
}

// Leaves the k nearest of the measured keys in found_, in order; of equal distances the lower entry comes first.
void IvfSearcher::find_nearest(const std::vector<int32_t>& candidates, int64_t k) {
  found_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (count_below(measured_.data(), candidates.size(), measured_[i]) >= k) continue;
    found_.push_back({0.0f, candidates[i]});
    std::memcpy(&found_.back().distance, &measured_[i], sizeof(float));
  }
  std::sort(found_.begin(), found_.end());
  if (found_.size() > static_cast<size_t>(k)) found_.resize(k);
}

}  // namespace ibidem

// keys: [count, dimension]; lists: [count], of the nearest centroid found; seconds: [count], a second list of each, -1 where
// there is none, or null. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_ivf_assign(const ibidem::Ivf* ivf, const ibidem::SearchSettings* settings, const float* keys,
                                    int64_t count, int32_t* lists, int32_t* seconds, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    with_quads(ivf->coding.quads(), [&](auto quads) {
      assign_all<decltype(quads)::value>(*ivf, *settings, keys, count, lists, seconds, threads);
    });
    return 1;
  });
}
