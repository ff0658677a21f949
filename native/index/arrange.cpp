// Orders the keys of a list so that each block of 16 consecutive keys lies close together. Only their entries are moved.
//
// A list is split in two halves across its longest axis, and each half again, until a half is a block. Halves are whole blocks,
// so that only the last one is padded. Clusters by k-means with at most 16 keys each were no tighter.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/buffer.h"
#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "index/ivf.h"

namespace ibidem {
namespace {

// Rounds of power iteration: an approximate longest axis is enough.
constexpr int kRounds = 4;

class Arranger {
 public:
  explicit Arranger(const Keys& keys)
      : keys_(keys),
        width_((keys.dimension + kLanes - 1) / kLanes * kLanes),
        mean_(width_),
        axis_(width_),
        sums_(width_) {}

  // Reorders entries [count]; those of one block keep their given order.
  void arrange(int32_t* entries, int64_t count) {
    rows_ = rows_buffer_.of(count * width_);
    for (int64_t i = 0; i < count; ++i) {
      float* row = rows_ + i * width_;
      keys_.read(entries[i], row);
      std::fill(row + keys_.dimension, row + width_, 0.0f);
    }
    order_.resize(count);
    for (int64_t i = 0; i < count; ++i) order_[i] = {0.0f, i};
    split(0, count);
    const std::vector<int32_t> given(entries, entries + count);
    for (int64_t i = 0; i < count; ++i) entries[i] = given[order_[i].row];
  }

 private:
  struct Place {
    float along;  // the axis
    int64_t row;
    bool operator<(const Place& other) const { return along != other.along ? along < other.along : row < other.row; }
  };

  void split(int64_t begin, int64_t end) {
    const auto first = order_.begin() + begin, last = order_.begin() + end;
    if (end - begin <= kLanes) {
      std::sort(first, last, [](const Place& a, const Place& b) { return a.row < b.row; });
      return;
    }
    find_axis(begin, end);
    for (auto place = first; place != last; ++place) place->along = product(place->row);
    const int64_t blocks = (end - begin + kLanes - 1) / kLanes, middle = begin + blocks / 2 * kLanes;
    std::nth_element(first, order_.begin() + middle, last);
    split(begin, middle);
    split(middle, end);
  }

  // Leaves an approximation of the longest axis of these rows in axis_, of any length.
  void find_axis(int64_t begin, int64_t end) {
    std::fill(mean_.begin(), mean_.end(), 0.0f);
    for (int64_t i = begin; i < end; ++i) add(mean_, 1.0f / static_cast<float>(end - begin), order_[i].row);
    float farthest = -1;
    for (int64_t i = begin; i < end; ++i) {
      const float* row = rows_ + order_[i].row * width_;
      Floats squares = splat(0.0f);
      for (int64_t j = 0; j < width_; j += kLanes) {
        const Floats difference = load(row + j) - load(mean_.data() + j);
        squares = fma(difference, difference, squares);
      }
      if (sum(squares) <= farthest) continue;
      farthest = sum(squares);
      for (int64_t j = 0; j < width_; j += kLanes) store(axis_.data() + j, load(row + j) - load(mean_.data() + j));
    }
    for (int round = 0; round < kRounds; ++round) {
      std::fill(sums_.begin(), sums_.end(), 0.0f);
      const float middle = along(mean_.data());
      float total = 0, longest = 0;
      for (int64_t i = begin; i < end; ++i) {
        const float weight = product(order_[i].row) - middle;
        total += weight;
        add(sums_, weight, order_[i].row);
      }
      for (int64_t j = 0; j < width_; ++j) {
        sums_[j] -= total * mean_[j];
        longest = std::max(longest, std::abs(sums_[j]));
      }
      if (!(longest > 0)) return;
      for (int64_t j = 0; j < width_; ++j) axis_[j] = sums_[j] / longest;
    }
  }

  float along(const float* row) const {
    Floats products = splat(0.0f);
    for (int64_t j = 0; j < width_; j += kLanes) products = fma(load(row + j), load(axis_.data() + j), products);
    return sum(products);
  }
  float product(int64_t row) const { return along(rows_ + row * width_); }
  void add(std::vector<float>& to, float weight, int64_t row) const {
    for (int64_t j = 0; j < width_; j += kLanes)
      store(to.data() + j, fma(splat(weight), load(rows_ + row * width_ + j), load(to.data() + j)));
  }

  const Keys& keys_;
  int64_t width_;
  float* rows_ = nullptr;
  Scratch<float> rows_buffer_;
  std::vector<Place> order_;
  std::vector<float> mean_, axis_, sums_;
};

}  // namespace
}  // namespace ibidem

// entries: [16 x blocks]; offsets: [lists + 1], in blocks; sizes: [lists], the number of keys, whose entries are at the
// beginning of their list. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_ivf_arrange(const ibidem::Keys* keys, int32_t* entries, const int32_t* offsets, const int32_t* sizes,
                                     int64_t lists, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    parallel_dynamic(threads, lists, [&] {
      return [&, arranger = Arranger(*keys)](int64_t list) mutable {
        arranger.arrange(entries + int64_t{offsets[list]} * kLanes, sizes[list]);
      };
    });
    return 1;
  });
}
