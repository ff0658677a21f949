// Queries in groups that share searches, as plain data that several threads take work from.
//
// The hypotheses of one sentence often have nearly the same query. Of each sentence two queries that are far apart are
// representatives: the index is searched for them. Every other query is a member of the group of the nearer representative
// and, where it is close enough to that, only the representative's candidates are compared with it. Which queries are
// searched for depends on the queries of the sentence alone, never on threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "index/searcher.h"

namespace ibidem {

struct QueryBatch {
  const float* queries;  // [count, dimension]
  int64_t count;
  int64_t group_size;      // consecutive queries that belong to one sentence
  const uint8_t* skipped;  // [count], 1 for queries that get no neighbours; null where there is none
  float* distances;        // [count, k]
  int64_t* entries;        // [count, k]
};

class QueryGroup {
 public:
  QueryGroup(int64_t representative, size_t begin, size_t end) : representative_(representative), end_(end), next_(begin) {}

  int64_t representative() const { return representative_; }
  // Whether the representative's candidates are known, so that members may be searched for.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  bool all_taken() const { return next_.load(std::memory_order_relaxed) >= end_; }

 private:
  friend class QueryGroups;

  int64_t representative_;
  size_t end_;                // of its members
  std::atomic<size_t> next_;  // member that no thread has taken
  std::atomic<bool> ready_{false};
  std::vector<int32_t> candidates_;
};

class QueryGroups {
 public:
  QueryGroups(const Ivf& ivf, int64_t k, const QueryBatch& batch);

  // Forms the groups; called by one thread before all below. Skipped and unusable queries get no neighbours and are done.
  void plan();
  std::deque<QueryGroup>& groups() { return groups_; }

  // Takes a group whose representative no thread has taken; null where there is none.
  QueryGroup* take_group();
  // Takes a member that no thread has taken; -1 where there is none.
  int64_t take_member(QueryGroup& group);

  // Searches the index for a group's representative, and makes the group ready.
  void search_representative(IvfSearcher& searcher, QueryGroup& group, const SearchSettings& settings);
  // Searches among the candidates of a ready group; false where the member is too far from the representative for that.
  bool search_member(IvfSearcher& searcher, const QueryGroup& group, int64_t member);
  // Searches the index for one query.
  void search(IvfSearcher& searcher, int64_t row, const SearchSettings& settings);

  // Whether the neighbours of a query are in place.
  bool done(int64_t row) const { return done_[row].load(std::memory_order_acquire); }

 private:
  // A query of the sentence that is being planned, and its distance from the first one.
  struct Planned {
    int64_t row;
    float distance;
  };

  void plan_sentence(int64_t begin, int64_t end);
  template <class IsMember>
  void add_group(int64_t representative, IsMember is_member);
  void finish(int64_t row) { done_[row].store(true, std::memory_order_release); }
  const float* query(int64_t row) const { return batch_.queries + row * ivf_.coding.dimension; }
  float distance(int64_t row, int64_t other) const;

  const Ivf& ivf_;
  int64_t k_;
  QueryBatch batch_;
  std::vector<Planned> planned_;
  std::vector<int64_t> members_;  // those of a group are adjacent
  std::deque<QueryGroup> groups_;
  std::atomic<size_t> next_group_{0};
  std::vector<std::atomic<bool>> done_;  // [count]
};

}  // namespace ibidem
