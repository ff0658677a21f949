#include "index/query_groups.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"

namespace ibidem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// A member's squared distance from its representative, relative to that of the representative's k-th neighbour, below which
// nearly all of the member's neighbours are among the representative's candidates (docs/results/search.md).
constexpr float kShared = 0.1f;

}  // namespace

QueryGroups::QueryGroups(const Ivf& ivf, int64_t k, const QueryBatch& batch)
    : ivf_(ivf), k_(k), batch_(batch), done_(batch.count) {
  batch_.group_size = std::max<int64_t>(1, batch.group_size);
}

void QueryGroups::plan() {
  for (int64_t begin = 0; begin < batch_.count; begin += batch_.group_size)
    plan_sentence(begin, std::min(batch_.count, begin + batch_.group_size));
}

void QueryGroups::plan_sentence(int64_t begin, int64_t end) {
  planned_.clear();
  int64_t farthest = begin;
  float most = 0;
  for (int64_t row = begin; row < end; ++row) {
    if ((batch_.skipped != nullptr && batch_.skipped[row]) || !usable(query(row), ivf_.coding.dimension)) {
      std::fill_n(batch_.distances + row * k_, k_, kInfinity);
      std::fill_n(batch_.entries + row * k_, k_, -1);
      finish(row);
      continue;
    }
    const float from_first = planned_.empty() ? 0 : distance(row, planned_.front().row);
    planned_.push_back({row, from_first});
    if (!(from_first > most)) continue;
    most = from_first;
    farthest = row;
  }
  if (planned_.empty()) return;
  const int64_t first = planned_.front().row;
  const auto nearer_to_farthest = [&](const Planned& one) { return most > 0 && distance(one.row, farthest) < one.distance; };
  add_group(first, [&](const Planned& one) { return one.row != first && !nearer_to_farthest(one); });
  if (most > 0) add_group(farthest, [&](const Planned& one) { return one.row != farthest && nearer_to_farthest(one); });
}

template <class IsMember>
void QueryGroups::add_group(int64_t representative, IsMember is_member) {
  const size_t begin = members_.size();
  for (const Planned& one : planned_)
    if (is_member(one)) members_.push_back(one.row);
  groups_.emplace_back(representative, begin, members_.size());
}

float QueryGroups::distance(int64_t row, int64_t other) const {
  return square_distance(query(row), query(other), ivf_.coding.dimension);
}

QueryGroup* QueryGroups::take_group() {
  const size_t group = next_group_++;
  return group < groups_.size() ? &groups_[group] : nullptr;
}

int64_t QueryGroups::take_member(QueryGroup& group) {
  const size_t member = group.next_++;
  return member < group.end_ ? members_[member] : -1;
}

void QueryGroups::search_representative(IvfSearcher& searcher, QueryGroup& group, const SearchSettings& settings) {
  search(searcher, group.representative_, settings);
  if (group.all_taken()) return;
  group.candidates_ = searcher.candidates();
  group.ready_.store(true, std::memory_order_release);
}

bool QueryGroups::search_member(IvfSearcher& searcher, const QueryGroup& group, int64_t member) {
  const float farthest = batch_.distances[group.representative_ * k_ + k_ - 1];
  if (!(farthest < kInfinity && distance(member, group.representative_) < kShared * farthest)) return false;
  searcher.search_among(group.candidates_, query(member), k_, batch_.distances + member * k_, batch_.entries + member * k_);
  finish(member);
  return true;
}

void QueryGroups::search(IvfSearcher& searcher, int64_t row, const SearchSettings& settings) {
  searcher.search(query(row), settings, batch_.distances + row * k_, batch_.entries + row * k_);
  finish(row);
}

namespace {

// How far to search for each query. modes: [count], of SearchMode; null where all are searched for with the full settings.
struct RowSettings {
  const SearchSettings &full, *reduced;
  const uint8_t* modes;

  bool is(int64_t row, SearchMode mode) const { return modes != nullptr && modes[row] == static_cast<uint8_t>(mode); }
  const SearchSettings& of(int64_t row) const { return is(row, SearchMode::kReduced) ? *reduced : full; }
};

void search_members(QueryGroups& groups, IvfSearcher& searcher, QueryGroup& group, const RowSettings& settings) {
  for (int64_t member = groups.take_member(group); member >= 0; member = groups.take_member(group))
    if (!groups.search_member(searcher, group, member)) groups.search(searcher, member, settings.of(member));
}

void search_batch(const Ivf& ivf, const RowSettings& settings, const uint16_t* alive_mask, QueryBatch batch, int threads) {
  std::vector<uint8_t> skipped(batch.count);
  for (int64_t row = 0; row < batch.count; ++row) skipped[row] = settings.is(row, SearchMode::kSkip);
  batch.skipped = skipped.data();
  QueryGroups groups(ivf, settings.full.k, batch);
  groups.plan();
  parallel_run(static_cast<int>(std::min<size_t>(threads, groups.groups().size())), [&](int, int) {
    IvfSearcher& searcher = IvfSearcher::of_thread(ivf, alive_mask);
    for (QueryGroup* group = groups.take_group(); group != nullptr; group = groups.take_group()) {
      groups.search_representative(searcher, *group, settings.of(group->representative()));
      search_members(groups, searcher, *group, settings);
    }
    for (QueryGroup& group : groups.groups()) {
      while (!group.all_taken() && !group.ready()) std::this_thread::yield();
      search_members(groups, searcher, group, settings);
    }
  });
}

}  // namespace
}  // namespace ibidem

// queries: [count, dimension], of which each group_size are of one sentence; modes, reduced: see RowSettings; alive_mask: see
// IvfSearcher; distances, entries: [count, k]. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_ivf_search(const ibidem::Ivf* ivf, const ibidem::SearchSettings* full,
                                    const ibidem::SearchSettings* reduced, const uint8_t* modes, const uint16_t* alive_mask,
                                    const float* queries, int64_t count, int64_t group_size, float* distances, int64_t* entries,
                                    int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    search_batch(*ivf, {*full, reduced, modes}, alive_mask, {queries, count, group_size, nullptr, distances, entries}, threads);
    return 1;
  });
}
