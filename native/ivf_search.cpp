// Search in an inverted file: lists by the distance of their centroids, as long as they can hold something near.
#include <atomic>
#include <deque>
#include <limits>
#include <thread>

#include "blocks.h"
#include "exports.h"
#include "guard.h"
#include "ivf.h"
#include "pool.h"
#include "shortlist.h"
#include "team.h"

namespace ibidem {
namespace {

// As in retrieve/neighbours.py: of longer queries no distance can be trusted.
constexpr float kLargestSquare = 0x1p120f;
// A query so near another one, beside the k-th neighbour of that, that it looks among what the other has found: squared
// distances. Nearly all of its own neighbours are there (docs/results/search.md).
constexpr float kNear = 0.1f;
constexpr float kNowhere = std::numeric_limits<float>::infinity();

// A neighbour and how far it is.
struct Found {
  float distance;
  int32_t entry;
  bool operator<(const Found& other) const {
    return distance != other.distance ? distance < other.distance : entry < other.entry;
  }
};

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

float dot(const float* a, const float* b, int64_t dimension) {
  Floats products = splat(0.0f);
  for (int64_t i = 0; i < dimension; i += kLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes, dimension - i));
    products = fma(load_first(a + i, count), load_first(b + i, count), products);
  }
  return sum(products);
}

bool usable(const float* query, int64_t dimension) { return dot(query, query, dimension) < kLargestSquare; }

template <int Groups>
class Searcher {
 public:
  // The searcher of this thread, which keeps its room from one call to the next.
  __attribute__((noinline)) static Searcher& of_thread(const Ivf& ivf, const SearchSettings& settings,
                                                       const uint16_t* live) {
    static thread_local Searcher searcher;
    searcher.ivf_ = ivf;
    searcher.settings_ = settings;
    searcher.live_ = live;
    return searcher;
  }

  // distances, entries: [k], inf and -1 where there is no neighbour.
  void search(const float* query, const SearchSettings& settings, float* distances, int64_t* entries) {
    settings_ = settings;
    set(query);
    pool_.clear(settings_.pool);
    look_into_lists();
    gather_slots();
    look_among(slots_, query, distances, entries);
  }

  // Where the candidates of the last search stand.
  const std::vector<int32_t>& slots() const { return slots_; }

  // As `search`, but among the keys in some slots.
  void look_among(const std::vector<int32_t>& slots, const float* query, float* distances, int64_t* entries) {
    if (ivf_.key_bytes == 2)
      measure_keys(slots, query, static_cast<const uint16_t*>(ivf_.keys));
    else
      measure_keys(slots, query, static_cast<const float*>(ivf_.keys));
    find_nearest(slots);
    for (size_t i = 0; i < static_cast<size_t>(settings_.k); ++i) {
      distances[i] = i < found_.size() ? found_[i].distance : kNowhere;
      entries[i] = i < found_.size() ? found_[i].entry : -1;
    }
  }

  // The list of the nearest centroid in the groups that are looked into.
  int64_t assign(const float* key) {
    set(key);
    open_regions();
    open_groups(0, near_groups_.bound(settings_.groups));
    lists_.clear();
    const int32_t nearest = near_lists_.nearest();
    near_lists_.collect(nearest, nearest, 0, near_lists_.count(), lists_);
    return what_of(lists_.front());
  }

  // Another list for a key that is assigned to a first one, or -1; centroids: [lists, dimension], in units of codes. Queries
  // that miss the key in its first list are those for which what the centroid leaves of it points their way. So the second
  // list is one whose centroid is near, and leaves of the key what is across to that (SOAR, Sun et al. 2023).
  int64_t assign_again(const float* key, int64_t first, const float* centroids) {
    const int64_t dimension = ivf_.coding.dimension;
    left_.resize(2 * dimension);
    float *before = left_.data(), *left = before + dimension;
    const float square = subtract(key, centroids + first * dimension, before);
    lists_.clear();
    near_lists_.collect(0, near_lists_.bound(kSeconds + 1), 0, near_lists_.count(), lists_);
    int64_t best = -1;
    float least = kNowhere;
    for (const Ranked list : lists_) {
      if (what_of(list) == first) continue;
      float loss = subtract(key, centroids + what_of(list) * dimension, left);
      const float along = dot(before, left, dimension);
      if (square > 0) loss += along * along / square;
      if (!(loss < least)) continue;
      least = loss;
      best = what_of(list);
    }
    return best;
  }

 private:
  // Leaves key - centroid in `left`, in units of codes, and gives its square.
  float subtract(const float* key, const float* centroid, float* left) const {
    const Coding& coding = ivf_.coding;
    for (int64_t i = 0; i < coding.dimension; ++i) left[i] = (key[i] - coding.mean[i]) * coding.scale - centroid[i];
    return dot(left, left, coding.dimension);
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
    measure<Groups>(code_, ivf_.coding, ivf_.region_blocks, blocks, [](int64_t i) { return i; },
                    [&](int64_t block, Ints distances) { near_regions_.add(block, distances); });
    open(near_regions_, 0, near_regions_.bound(std::max(kLeastRegions, settings_.groups / kGroupsPerRegion)),
         ivf_.group_blocks, near_groups_);
  }

  // Adds the lists of the groups from one distance to another to near_lists_.
  void open_groups(int32_t from, int32_t to) { open(near_groups_, from, to, ivf_.centroid_blocks, near_lists_); }

  // Adds the points of blocks, whose bases lie from one distance to another, to `inside`.
  void open(Shortlist& bases, int32_t from, int32_t to, const uint8_t* blocks, Shortlist& inside) {
    opened_.clear();
    bases.collect(from, to, 0, bases.count(), opened_);
    const int64_t bytes = block_bytes<kCoarseBits>(ivf_.coding.dimension);
    stops_.clear(opened_.size());
    for (const Ranked base : opened_) {
      stops_.add(static_cast<int32_t>(what_of(base)), distance_of(base));
      fetch<kLater>(blocks + what_of(base) * bytes, bytes);
    }
    query_.template measure<kCoarseBits>(blocks, stops_, [&](size_t i, Ints distances) {
      inside.add(stops_.block(i), max(splat(0), distances));
    });
  }

  // The nearest lists of the nearest groups in rounds, each as long as all before it: few of them show how near the
  // neighbours are, and spare most queries the rest. Then all others that may hold something near, of groups that may
  // hold such lists, as they lie: by now this changes little.
  void look_into_lists() {
    open_regions();
    const int32_t first_groups = near_groups_.bound(std::min(settings_.groups, kFirstGroups));
    open_groups(0, first_groups);
    const int64_t opened = near_lists_.count();
    const int32_t first_lists = near_lists_.bound(std::min(settings_.probes, kSorted));
    near_lists_.sort(first_lists, lists_);
    size_t begin = 0;
    for (size_t end = kFirstRound; begin < lists_.size(); begin = end, end *= 2) {
      if (distance_of(lists_[begin]) > limit(settings_.patience)) break;
      look_into(begin, std::min(end, lists_.size()));
    }
    // Most of those who are candidates by now stay so: their slots and then their keys come while the rest is looked through.
    fetch_slots();
    open_groups(first_groups + 1, near_groups_.within(limit(kGroupReach * settings_.patience), settings_.groups));
    const int32_t last = near_lists_.within(limit(settings_.patience), settings_.probes);
    lists_.clear();
    near_lists_.collect(first_lists + 1, last, 0, opened, lists_);
    near_lists_.collect(0, last, opened, near_lists_.count(), lists_);
    for (int64_t i = 0; i < pool_.count(); ++i) fetch_key<kLater>(ivf_.slots[pool_.place(i)]);
    look_into(0, lists_.size());
  }

  // Where the keys of the candidates stand.
  void fetch_slots() const {
    for (int64_t i = 0; i < pool_.count(); ++i) fetch(ivf_.slots + pool_.place(i), sizeof(int32_t));
  }

  // Leaves the slots of the candidates in slots_, each once: a key may have been found in both of its places.
  void gather_slots() {
    fetch_slots();
    slots_.assign(pool_.count() + kLanes, -1);
    size_t count = 0;
    for (int64_t i = 0; i < pool_.count(); ++i) {
      const int32_t slot = ivf_.slots[pool_.place(i)];
      Bits known = 0;
      for (size_t j = 0; j < count; j += kLanes) known |= equal(load(slots_.data() + j), splat(slot));
      slots_[count] = known == 0 ? slot : -1;
      count += known == 0;
    }
    slots_.resize(count);
  }

  // The key in a slot, or as much of it as the hardware needs to go on by itself. Inlined as `fetch` is.
  template <int When>
  __attribute__((always_inline)) void fetch_key(int64_t slot) const {
    const int64_t bytes = ivf_.coding.dimension * ivf_.key_bytes;
    fetch<When>(static_cast<const char*>(ivf_.keys) + slot * bytes, std::min(kFirstBytes, bytes));
  }

  // What is farther holds nothing near enough.
  int32_t limit(float patience) const {
    const float limit = patience * static_cast<float>(pool_.worst());
    return limit < kFarthest ? static_cast<int32_t>(limit) : kFarthest;
  }

  // The lists from begin to end of those at hand: their guides say which of their blocks. All guides are asked for before
  // the first is read, and each block as soon as its guide has named it: they come while others are measured.
  void look_into(size_t begin, size_t end) {
    const int64_t bytes = block_bytes<kFineBits>(ivf_.coding.dimension);
    size_t guides = 0;
    for (size_t i = begin; i < end; ++i) {
      const ListFacts& list = ivf_.lists[what_of(lists_[i])];
      guides += list.end_of_guides - list.first_guide;
    }
    guide_stops_.clear(guides);
    firsts_.clear();
    for (size_t i = begin; i < end; ++i) {
      const ListFacts& list = ivf_.lists[what_of(lists_[i])];
      int32_t first = list.first_block;
      for (int32_t guide = list.first_guide; guide < list.end_of_guides; ++guide, first += kLanes) {
        guide_stops_.add(guide, distance_of(lists_[i]));
        firsts_.push_back(first);
        fetch<kLater>(ivf_.guides + guide * bytes, bytes);
      }
    }
    stops_.clear(guides * kLanes);
    const Ints beyond = splat(limit(settings_.block_patience) + 1);
    query_.template measure<kFineBits>(ivf_.guides, guide_stops_, [&](size_t i, Ints distances) {
      size_t stop = stops_.count();
      stops_.add(splat(firsts_[i]) + counting(), distances, below(distances, beyond));
      for (; stop < stops_.count(); ++stop) fetch<kLater>(ivf_.blocks + stops_.block(stop) * bytes, bytes);
    });
    query_.template measure<kFineBits>(ivf_.blocks, stops_, [&](size_t i, Ints distances) {
      const Ints positive = max(splat(0), distances);
      Bits near = below(positive, splat(pool_.worst()));
      if (live_ != nullptr) near &= live_[stops_.block(i)];
      pool_.add(stops_.block(i), positive, near);
    });
    pool_.settle();
  }

  template <class Key>
  void measure_keys(const std::vector<int32_t>& slots, const float* query, const Key* keys) {
    const int64_t dimension = ivf_.coding.dimension;
    for (const int32_t slot : slots) fetch_key<kSoon>(slot);
    measured_.resize(slots.size() + kLanes);
    for (size_t i = 0; i < slots.size(); ++i) {
      const float distance = square_distance(query, keys + int64_t{slots[i]} * dimension, dimension);
      std::memcpy(&measured_[i], &distance, sizeof(distance));
    }
    store(measured_.data() + slots.size(), splat(std::numeric_limits<int32_t>::max()));
  }

  // Leaves the k nearest of the keys that were measured in found_, or all, in order. Entries decide between equals, and are
  // looked up for those alone that they can help.
  void find_nearest(const std::vector<int32_t>& slots) {
    found_.clear();
    for (size_t i = 0; i < slots.size(); ++i) {
      if (count_below(measured_.data(), slots.size(), measured_[i]) >= settings_.k) continue;
      found_.push_back({0.0f, ivf_.entries[slots[i]]});
      std::memcpy(&found_.back().distance, &measured_[i], sizeof(float));
    }
    std::sort(found_.begin(), found_.end());
    if (found_.size() > static_cast<size_t>(settings_.k)) found_.resize(settings_.k);
  }

  static constexpr int64_t kLeastRegions = 64, kGroupsPerRegion = 3, kFirstGroups = 32, kSorted = 32, kFirstBytes = 1024;
  static constexpr size_t kFirstRound = 4;
  // Lists among which a key's second one is chosen.
  static constexpr int64_t kSeconds = 8;
  static constexpr float kGroupReach = 1.3f;

  Searcher() = default;

  Ivf ivf_;
  SearchSettings settings_;
  const uint16_t* live_;
  Coded code_;
  BlockQuery<Groups * kGroup> query_;
  Shortlist near_regions_, near_groups_, near_lists_;
  std::vector<Ranked> opened_, lists_;
  Stops guide_stops_, stops_;
  std::vector<int32_t> firsts_;  // of each guide: the block of keys that its first lane stands for
  Pool pool_;
  std::vector<int32_t> slots_;
  std::vector<float> left_;  // of a key, by each of two centroids
  std::vector<int32_t> measured_;  // the distances of keys, as the bits of floats: none is below zero, so they sort alike
  std::vector<Found> found_;
};

// Queries of hypotheses of one sentence, some of which lie near each other: two that are far apart lead, and are searched for,
// and each of the others follows the nearer one of them: it looks among what that one has found, where it is near enough. Who
// is searched for depends on the queries of the sentence alone.
template <int Groups>
class Search {
 public:
  Search(const Ivf& ivf, const SearchSettings& settings, const Brief& brief, const uint16_t* live, const Queries& queries)
      : ivf_(ivf),
        settings_(settings),
        brief_(brief),
        live_(live),
        queries_(queries.queries),
        count_(queries.count),
        together_(std::max<int64_t>(1, queries.together)),
        distances_(queries.distances),
        entries_(queries.entries) {}

  void run(int threads) {
    Inquiry* const inquiry = brief_.inquiry;
    std::atomic<bool> planned{false};
    if (inquiry == nullptr) {
      plan();
      threads = static_cast<int>(std::min<size_t>(threads, leaders_.size()));
    }
    gather(threads, [&](int, int) {
      if (inquiry != nullptr) {
        if (inquiry->make_queries()) {
          plan();
          planned.store(true, std::memory_order_release);
        }
        inquiry->prepare();
        while (!planned.load(std::memory_order_acquire)) pass_time();
      }
      auto& searcher = Searcher<Groups>::of_thread(ivf_, settings_, live_);
      for (size_t i = next_++; i < leaders_.size(); i = next_++) lead(searcher, leaders_[i]);
      help(searcher);
      if (inquiry != nullptr) inquiry->conclude();
    });
  }

 private:
  // A row that is searched for, and those that follow it.
  struct Leader {
    Leader(int64_t leading, size_t first) : row(leading), end(first), next(first) {}
    int64_t row;
    size_t end;                // behind its last follower
    std::atomic<size_t> next;  // of its followers that nobody has taken yet
    std::atomic<bool> found{false};
    std::vector<int32_t> slots;  // of its candidates, where it has followers, once they are found
  };

  const float* query(int64_t row) const { return queries_ + row * ivf_.coding.dimension; }
  float between(int64_t row, int64_t other) const {
    return square_distance(query(row), query(other), ivf_.coding.dimension);
  }

  void plan() {
    for (int64_t begin = 0; begin < count_; begin += together_) plan(begin, std::min(count_, begin + together_));
  }

  // Of the rows of a sentence, the first one leads, and the one that is farthest from it.
  void plan(int64_t begin, int64_t end) {
    rows_.clear();
    int64_t farthest = begin;
    float most = 0;
    for (int64_t row = begin; row < end; ++row) {
      if (!usable(query(row), ivf_.coding.dimension)) {
        std::fill_n(distances_ + row * settings_.k, settings_.k, kNowhere);
        std::fill_n(entries_ + row * settings_.k, settings_.k, -1);
        tell(row);
        continue;
      }
      const float away = rows_.empty() ? 0 : between(row, rows_.front().row);
      rows_.push_back({row, away});
      if (!(away > most)) continue;
      most = away;
      farthest = row;
    }
    if (rows_.empty()) return;
    const int64_t first = rows_.front().row;
    const auto nearer_to_farthest = [&](const Row& one) { return most > 0 && between(one.row, farthest) < one.away; };
    enlist(first, [&](const Row& one) { return one.row != first && !nearer_to_farthest(one); });
    if (most > 0) enlist(farthest, [&](const Row& one) { return one.row != farthest && nearer_to_farthest(one); });
  }

  template <class Follows>
  void enlist(int64_t row, Follows follows) {
    leaders_.emplace_back(row, followers_.size());
    for (const Row& one : rows_)
      if (follows(one)) followers_.push_back(one.row);
    leaders_.back().end = followers_.size();
  }

  void lead(Searcher<Groups>& searcher, Leader& leader) {
    search(searcher, leader.row);
    tell(leader.row);
    if (leader.next == leader.end) return;
    leader.slots = searcher.slots();
    leader.found.store(true, std::memory_order_release);
    follow(searcher, leader);
  }

  void follow(Searcher<Groups>& searcher, Leader& leader) {
    const int64_t k = settings_.k;
    const float reach = distances_[leader.row * k + k - 1];
    for (size_t i = leader.next++; i < leader.end; i = leader.next++) {
      const int64_t row = followers_[i];
      if (reach < kNowhere && between(row, leader.row) < kNear * reach)
        searcher.look_among(leader.slots, query(row), distances_ + row * k, entries_ + row * k);
      else
        search(searcher, row);
      tell(row);
    }
  }

  // Takes followers of leaders that others search for, as soon as these are found.
  void help(Searcher<Groups>& searcher) {
    for (bool waiting = true; waiting;) {
      waiting = false;
      for (Leader& leader : leaders_) {
        if (leader.next.load(std::memory_order_relaxed) >= leader.end) continue;
        if (leader.found.load(std::memory_order_acquire))
          follow(searcher, leader);
        else
          waiting = true;
      }
      if (waiting) pass_time();
    }
  }

  void pass_time() {
    if (brief_.inquiry == nullptr || !brief_.inquiry->pass_time()) std::this_thread::yield();
  }

  void tell(int64_t row) {
    if (brief_.inquiry != nullptr) brief_.inquiry->found(row);
  }

  void search(Searcher<Groups>& searcher, int64_t row) {
    const bool briefly = brief_.inquiry != nullptr && brief_.inquiry->briefly(row);
    searcher.search(query(row), briefly ? *brief_.settings : settings_, distances_ + row * settings_.k,
                    entries_ + row * settings_.k);
  }

  // A row of a sentence, and how far it is from the first one.
  struct Row {
    int64_t row;
    float away;
  };

  const Ivf& ivf_;
  const SearchSettings& settings_;
  Brief brief_;
  const uint16_t* live_;
  const float* queries_;
  int64_t count_, together_;
  float* distances_;
  int64_t* entries_;
  std::vector<Row> rows_;  // of the sentence that is planned
  std::deque<Leader> leaders_;
  std::atomic<size_t> next_{0};  // of the leaders that nobody has taken yet
  std::vector<int64_t> followers_;  // those of a leader side by side
};

// seconds: null where one list is enough.
template <int Groups>
void assign_all(const Ivf& ivf, const SearchSettings& settings, const float* keys, int64_t count, int32_t* lists,
                int32_t* seconds, int threads) {
  const int64_t dimension = ivf.coding.dimension, places = ivf.regions * kLanes * kLanes;
  std::vector<float> centroids(seconds == nullptr ? 0 : places * dimension);
  share(threads, centroids.size() / dimension, [&](int64_t begin, int64_t end) {
    for (int64_t list = begin; list < end; ++list) read_centroid(ivf, list, centroids.data() + list * dimension);
  });
  share(threads, count, [&](int64_t begin, int64_t end) {
    auto& searcher = Searcher<Groups>::of_thread(ivf, settings, nullptr);
    for (int64_t i = begin; i < end; ++i) {
      const float* key = keys + i * dimension;
      lists[i] = static_cast<int32_t>(searcher.assign(key));
      if (seconds != nullptr) seconds[i] = static_cast<int32_t>(searcher.assign_again(key, lists[i], centroids.data()));
    }
  });
}

// The dimension of compact keys is worth code of its own.
constexpr int kUsualGroups = 16;

}  // namespace

void search(const Ivf& ivf, const SearchSettings& settings, const Brief& brief, const uint16_t* live, const Queries& queries,
            int threads) {
  if (ivf.coding.groups() == kUsualGroups)
    Search<kUsualGroups>(ivf, settings, brief, live, queries).run(threads);
  else
    Search<0>(ivf, settings, brief, live, queries).run(threads);
}

}  // namespace ibidem

// queries: [count, dimension], so many together of one sentence; live: one bit for each place, 16 a block, 0 where an entry
// is to be passed over, or null; distances, entries: [count, k]. 0 where there is no room.
IBIDEM_EXPORT int ibidem_ivf_search(const ibidem::Ivf* ivf, const ibidem::SearchSettings* settings,
                                    const uint16_t* live, const float* queries, int64_t count, int64_t together,
                                    float* distances, int64_t* entries, int threads) {
  return ibidem::guard([&] {
    ibidem::search(*ivf, *settings, {nullptr, nullptr}, live, {queries, count, together, distances, entries}, threads);
    return 1;
  });
}

// keys: [count, dimension]; lists: [count], of the nearest centroid found; seconds: [count], a second list of each, -1 where
// there is none, or null. 0 where there is no room.
IBIDEM_EXPORT int ibidem_ivf_assign(const ibidem::Ivf* ivf, const ibidem::SearchSettings* settings, const float* keys,
                                    int64_t count, int32_t* lists, int32_t* seconds, int threads) {
  using namespace ibidem;
  return guard([&] {
    auto assign = ivf->coding.groups() == kUsualGroups ? assign_all<kUsualGroups> : assign_all<0>;
    assign(*ivf, *settings, keys, count, lists, seconds, threads);
    return 1;
  });
}
