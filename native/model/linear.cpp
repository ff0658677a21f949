#include "model/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"

namespace ibidem {
namespace {

constexpr int kGroup = 4;
constexpr int kTileOutputs = kTileBlocks * kLanes;
constexpr int kBlockBytes = kLanes * kGroup;
constexpr int kHalfTile = std::max(1, kTileBlocks / 2);
constexpr int kFewRows = kSums / kTileBlocks;
// Below this many rows the weights are widened for each row, where they are widened at all.
constexpr int64_t kWorthWidening = 8;
// One less than the values of a byte, since both ends of a range may round outwards.
constexpr float kSteps = 254.0f;
// The largest value may be this many times the range of the bytes; sums then stay well within int32.
constexpr float kHeights = 64.0f;
// Bytes of weights and elements of rows for which waking another thread pays.
constexpr int64_t kLeastWeights = 1 << 18;
constexpr int64_t kLeastElements = 1 << 15;

// The largest and the second largest value seen, counting negative values as zero.
class Highest {
 public:
  void see(Floats x) {
    second_ = max(second_, min(first_, x));
    first_ = max(first_, x);
  }
  float first() const { return largest(first_); }
  float second() const {
    const Bits places = at_least(first_, splat(first()));
    float firsts[kLanes], seconds[kLanes];
    store(firsts, first_);
    store(seconds, second_);
    const int place = __builtin_ctz(places);
    firsts[place] = seconds[place];
    return largest(load(firsts));
  }

 private:
  Floats first_ = splat(0.0f), second_ = splat(0.0f);
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void QuantisedRows::set(const float* x, int64_t rows, int64_t width, int64_t threads) {
  rows_ = rows;
  stride_ = divide_up(width, kLanes) * kLanes;
  bytes_ = bytes_buffer_.of(rows * stride_);
  infos_ = infos_buffer_.of(rows);
  parallel_for(threads_for(threads, rows * width, kLeastElements), rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) set_row(x + r * width, r, width);
  });
}

void QuantisedRows::set_row(const float* x, int64_t r, int64_t width) {
  const int64_t whole = width / kLanes * kLanes;
  const int rest = static_cast<int>(width - whole);
  auto at = [&](int64_t i) { return i < whole ? load(x + i) : load_first(x + i, rest); };
  Highest above, below;
  Floats nothing = splat(0.0f);
  for (int64_t i = 0; i < width; i += kLanes) {
    const Floats here = at(i);
    above.see(here);
    below.see(splat(0.0f) - here);
    nothing = fma(here, splat(0.0f), nothing);  // a maximum ignores NaN, a sum of zeros does not
  }
  RowInfo& facts = infos_[r];
  facts = {std::numeric_limits<float>::quiet_NaN(), 0, 0, 0};
  if (sum(nothing) != 0.0f) return;

  const float high = above.first(), low = below.first();
  const bool upwards = high >= low;
  const float top = upwards ? high : low;
  const float lowest = upwards ? low : below.second();
  const float highest = upwards ? above.second() : high;
  // Divided before they are added, so that finite numbers do not overflow.
  const float even = std::max(highest / kSteps + lowest / kSteps, top / (kHeights * kSteps));
  facts.step = std::max(even, std::numeric_limits<float>::min());
  const float inverse = 1.0f / facts.step;
  facts.zero = static_cast<int32_t>(std::nearbyint(lowest * inverse));
  facts.height = static_cast<int32_t>(std::nearbyint((upwards ? top : -top) * inverse));

  RowByte* bytes = bytes_ + r * stride_;
  const Floats steps = splat(inverse), edge = splat(top), sign = splat(upwards ? 1.0f : -1.0f);
  const Ints zero = splat(facts.zero);
  int64_t peak = -1;
  for (int64_t i = 0; i < width; i += kLanes) {
    const Floats here = at(i);
    const Bits peaks = at_least(here * sign, edge);
    if (peaks != 0 && peak < 0) peak = i + __builtin_ctz(peaks);
    store_bytes(bytes + i, round_to_ints(here * steps) + zero);
  }
  bytes[peak] = static_cast<RowByte>(facts.zero);
  facts.peak = static_cast<int32_t>(peak);
}

Linear::Linear(const int8_t* weights, const float* scales, const float* bias, int64_t inputs, int64_t outputs)
    : inputs_(inputs),
      outputs_(outputs),
      quads_(divide_up(inputs, kGroup)),
      tiles_(divide_up(outputs, kTileOutputs)),
      weights_(tiles_ * kTileOutputs * quads_ * kGroup),
      weight_sums_(tiles_ * kTileOutputs),
      scales_(tiles_ * kTileOutputs),
      bias_(tiles_ * kTileOutputs) {
  std::memset(weights_.get(), 0, tiles_ * kTileOutputs * quads_ * kGroup);
  for (int64_t n = 0; n < tiles_ * kTileOutputs; ++n) {
    const bool real = n < outputs;
    scales_[n] = real ? scales[n] : 0.0f;
    bias_[n] = real && bias != nullptr ? bias[n] : 0.0f;
    weight_sums_[n] = real ? std::accumulate(weights + n * inputs, weights + (n + 1) * inputs, int32_t{0}) : 0;
  }
  for (int64_t tile = 0; tile < tiles_; ++tile) pack(weights, tile);
}

void Linear::pack(const int8_t* weights, int64_t tile) {
  int8_t* place = weights_.get() + tile * quads_ * kTileOutputs * kGroup;
  const int64_t first = tile * kTileOutputs, last = std::min(outputs_, first + kTileOutputs);
  for (int64_t group = 0; group < quads_; ++group) {
    const int64_t begin = group * kGroup, count = std::min<int64_t>(kGroup, inputs_ - begin);
    for (int64_t n = first; n < last; ++n)
      std::memcpy(place + (group * kTileOutputs + n - first) * kGroup, weights + n * inputs_ + begin, count);
  }
}

Ints Linear::column(int64_t input, int64_t first_output) const {
  const int64_t tile = first_output / kTileOutputs, block = first_output % kTileOutputs / kLanes;
  const int8_t* groups = weights_.get() + ((tile * quads_ + input / kGroup) * kTileBlocks + block) * kBlockBytes;
  Sums once = no_sums();
  add_products(once, groups, spread(uint32_t{1} << input % kGroup * 8));
  return total(once);
}

void Linear::apply(const QuantisedRows& x, Activation activation, float* out, int64_t threads) const {
  // Few rows are bound by reading the weights, many by multiplication.
  const int64_t work = inputs_ * outputs_ * std::max<int64_t>(1, x.rows() / kFewRows);
  parallel_for(threads_for(threads, work, kLeastWeights), tiles_, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      // With few rows the weights of a whole tile are read once. With many rows they should stay in the first-level cache,
      // which holds half a tile.
      if (x.rows() <= kFewRows) {
        apply_rows<kFewRows, kTileBlocks>(x, 0, part(tile, 0), activation, out);
        continue;
      }
      for (int block = 0; block < kTileBlocks; block += kHalfTile) {
        constexpr int kRows = kSums / kHalfTile;
        if (x.rows() <= kWorthWidening)
          apply_all_rows<kRows, kHalfTile>(x, part(tile, block), activation, out);
        else
          apply_all_rows<kRows, kHalfTile>(x, widened<kHalfTile>(part(tile, block)), activation, out);
      }
    }
  });
}

Linear::Part<int8_t> Linear::part(int64_t tile, int first_block) const {
  constexpr int64_t kStep = kTileBlocks * kBlockBytes;
  const int8_t* weights = weights_.get() + tile * quads_ * kStep + first_block * kBlockBytes;
  return {(tile * kTileBlocks + first_block) * kLanes, weights, kStep};
}

template <int Blocks, class Wide>
Linear::Part<Wide> Linear::widened(const Part<int8_t>& part) const {
  if constexpr (std::is_same_v<Wide, int8_t>) {
    return part;
  } else {
    constexpr int64_t kStep = Blocks * kBlockBytes;
    static thread_local Scratch<Wide> buffer;
    Wide* wide = buffer.of(quads_ * kStep);
    for (int64_t group = 0; group < quads_; ++group) std::copy_n(part.weights + group * part.step, kStep, wide + group * kStep);
    return {part.first_output, wide, kStep};
  }
}

template <int Rows, int Blocks, class Weight>
void Linear::apply_all_rows(const QuantisedRows& x, const Part<Weight>& part, Activation activation, float* out) const {
  int64_t row = 0;
  for (; row + Rows <= x.rows(); row += Rows) apply_part<Rows, Blocks>(x, row, part, activation, out);
  apply_rows<Rows - 1, Blocks>(x, row, part, activation, out);
}

template <int Rows, int Blocks, class Weight>
void Linear::apply_rows(const QuantisedRows& x, int64_t first_row, const Part<Weight>& part, Activation activation,
                        float* out) const {
  if constexpr (Rows > 0) {
    if (x.rows() - first_row == Rows) return apply_part<Rows, Blocks>(x, first_row, part, activation, out);
    apply_rows<Rows - 1, Blocks>(x, first_row, part, activation, out);
  }
}

template <int Rows, int Blocks, class Weight>
void Linear::apply_part(const QuantisedRows& x, int64_t first_row, const Part<Weight>& part, Activation activation,
                        float* out) const {
  // The rows of a wide output lie pages apart: they are prefetched while the sums are computed.
  for (int r = 0; r < Rows; ++r)
    for (int block = 0; block < Blocks; ++block)
      __builtin_prefetch(out + (first_row + r) * outputs_ + part.first_output + block * kLanes, 1);
  int32_t totals[Rows][Blocks][kLanes];
  multiply(part.weights, part.step, quads_, x.row(first_row), x.stride(), totals);
  for (int block = 0; block < Blocks; ++block) {
    const int64_t output = part.first_output + block * kLanes;
    const int count = static_cast<int>(std::min<int64_t>(kLanes, outputs_ - output));
    if (count <= 0) break;
    const Ints weights = load(weight_sums_.get() + output);
    const Floats scale = load(scales_.get() + output), bias = load(bias_.get() + output);
    for (int r = 0; r < Rows; ++r) {
      const int64_t row = first_row + r;
      const Ints apart = column(x.peak(row), output) * splat(x.height(row)) - weights * splat(x.zero(row));
      const Floats product = to_floats(load(totals[r][block]) + apart) * scale;
      const Floats y = activate(fma(product, splat(x.step(row)), bias), activation);
      float* place = out + (first_row + r) * outputs_ + output;
      if (count == kLanes)
        store(place, y);
      else
        store_first(place, y, count);
    }
  }
}

}  // namespace ibidem

// Makes a layer of weights [outputs, inputs], scales [outputs] and a bias [outputs] or null. Returns null when out of memory.
IBIDEM_EXPORT void* ibidem_linear_new(const int8_t* weights, const float* scales, const float* bias, int64_t inputs,
                                      int64_t outputs) {
  return ibidem::noexcept_call([&] { return new ibidem::Linear(weights, scales, bias, inputs, outputs); });
}

IBIDEM_EXPORT void ibidem_linear_free(void* linear) { delete static_cast<ibidem::Linear*>(linear); }

// x: [rows, inputs]; out: [rows, outputs]. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_linear_apply(const void* linear, const float* x, int64_t rows, int activation, float* out,
                                      int threads) {
  static thread_local ibidem::QuantisedRows quantised;
  return ibidem::noexcept_call([&] {
    auto* layer = static_cast<const ibidem::Linear*>(linear);
    quantised.set(x, rows, layer->inputs(), threads);
    layer->apply(quantised, static_cast<ibidem::Activation>(activation), out, threads);
    return 1;
  });
}
