#include "linear.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "exponential.h"
#include "exports.h"
#include "guard.h"
#include "team.h"

namespace ibidem {
namespace {

constexpr int kGroup = 4;
constexpr int kTileOutputs = kTileBlocks * kLanes;
constexpr int kBlockBytes = kLanes * kGroup;
constexpr int kHalfTile = kTileBlocks / 2;
constexpr int kFewRows = kSums / kTileBlocks;
constexpr float kSteps = 127.0f;
constexpr int32_t kZero = 128;
// Bytes of weights, and elements of rows, that are worth another thread.
constexpr int64_t kLeastWeights = 1 << 18;
constexpr int64_t kLeastElements = 1 << 15;
// Bytes of weights that are asked for ahead of their use.
constexpr int64_t kPrefetch = 2048;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Floats activate(Floats x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return max(splat(0.0f), x);
    case Activation::kSwish:
      return x / (splat(1.0f) + exponential(splat(0.0f) - x));
    default:
      return x;
  }
}

}  // namespace

void QuantisedRows::set(const float* x, int64_t rows, int64_t width, int64_t threads) {
  rows_ = rows;
  stride_ = divide_up(width, kLanes) * kLanes;
  bytes_ = bytes_room_.of(rows * stride_);
  largest_ = largest_room_.of(rows);
  zero_ = zero_room_.of(rows);
  share(threads_for(threads, rows * width, kLeastElements), rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) set_row(x + r * width, r, width);
  });
}

void QuantisedRows::set_row(const float* x, int64_t r, int64_t width) {
  const int64_t whole = width / kLanes * kLanes;
  const int rest = static_cast<int>(width - whole);
  // The maximum would pass over NaN, the sum of zeros does not.
  Floats highest = splat(0.0f), lowest = splat(0.0f), nothing = splat(0.0f);
  auto look = [&](Floats here) {
    highest = max(highest, here);
    lowest = max(lowest, splat(0.0f) - here);
    nothing = fma(here, splat(0.0f), nothing);
  };
  for (int64_t i = 0; i < whole; i += kLanes) look(load(x + i));
  if (rest != 0) look(load_first(x + whole, rest));
  const bool finite = sum(nothing) == 0.0f;
  const float high = ibidem::largest(highest), low = ibidem::largest(lowest);
  const float range = std::max(high + low, 255 * std::numeric_limits<float>::min());
  const float step = range / 254.0f;
  zero_[r] = finite ? static_cast<int32_t>(std::nearbyint(low / step)) : 0;
  largest_[r] = finite ? step * kSteps : std::numeric_limits<float>::quiet_NaN();
  const Floats unit = splat(finite ? step : 1.0f);
  const Ints zero = splat(zero_[r]);
  auto quantise = [&](Floats here, int64_t i) {
    store_bytes(bytes_ + r * stride_ + i, round_to_ints(here / unit) + zero);
  };
  for (int64_t i = 0; i < whole; i += kLanes) quantise(load(x + i), i);
  if (rest != 0) quantise(load_first(x + whole, rest), whole);
}

Linear::Linear(const int8_t* weights, const float* scales, const float* bias, int64_t inputs, int64_t outputs)
    : inputs_(inputs),
      outputs_(outputs),
      groups_(divide_up(inputs, kGroup)),
      tiles_(divide_up(outputs, kTileOutputs)),
      weights_(tiles_ * kTileOutputs * groups_ * kGroup),
      zero_(tiles_ * kTileOutputs),
      scales_(tiles_ * kTileOutputs),
      bias_(tiles_ * kTileOutputs) {
  std::memset(weights_.get(), 0, tiles_ * kTileOutputs * groups_ * kGroup);
  for (int64_t n = 0; n < tiles_ * kTileOutputs; ++n) {
    const bool real = n < outputs;
    scales_[n] = real ? scales[n] * (1.0f / kSteps) : 0.0f;
    bias_[n] = real && bias != nullptr ? bias[n] : 0.0f;
    zero_[n] = real ? std::accumulate(weights + n * inputs, weights + (n + 1) * inputs, int32_t{0}) : 0;
  }
  for (int64_t tile = 0; tile < tiles_; ++tile) pack(weights, tile);
}

void Linear::pack(const int8_t* weights, int64_t tile) {
  int8_t* place = weights_.get() + tile * groups_ * kTileOutputs * kGroup;
  const int64_t first = tile * kTileOutputs, last = std::min(outputs_, first + kTileOutputs);
  for (int64_t group = 0; group < groups_; ++group) {
    const int64_t begin = group * kGroup, count = std::min<int64_t>(kGroup, inputs_ - begin);
    for (int64_t n = first; n < last; ++n)
      std::memcpy(place + (group * kTileOutputs + n - first) * kGroup, weights + n * inputs_ + begin, count);
  }
}

void Linear::apply(const QuantisedRows& x, Activation activation, float* out, int64_t threads) const {
  // Few rows cost what it takes to read the weights, many what it takes to multiply.
  const int64_t work = inputs_ * outputs_ * std::max<int64_t>(1, x.rows() / kFewRows);
  share(threads_for(threads, work, kLeastWeights), tiles_, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      // With few rows the weights are read once and all of a tile's at a time; with many rows what counts is that they
      // stay in the nearest cache, and half a tile's do.
      if (x.rows() <= kFewRows) {
        apply_rows<kFewRows, kTileBlocks>(x, 0, tile, 0, activation, out);
      } else {
        for (int block = 0; block < kTileBlocks; block += kHalfTile)
          apply_all_rows<kSums / kHalfTile, kHalfTile>(x, tile, block, activation, out);
      }
    }
  });
}

template <int Rows, int Blocks>
void Linear::apply_all_rows(const QuantisedRows& x, int64_t tile, int first_block, Activation activation,
                            float* out) const {
  int64_t row = 0;
  for (; row + Rows <= x.rows(); row += Rows) apply_part<Rows, Blocks>(x, row, tile, first_block, activation, out);
  apply_rows<Rows - 1, Blocks>(x, row, tile, first_block, activation, out);
}

template <int Rows, int Blocks>
void Linear::apply_rows(const QuantisedRows& x, int64_t first_row, int64_t tile, int first_block,
                        Activation activation, float* out) const {
  if constexpr (Rows > 0) {
    if (x.rows() - first_row == Rows) return apply_part<Rows, Blocks>(x, first_row, tile, first_block, activation, out);
    apply_rows<Rows - 1, Blocks>(x, first_row, tile, first_block, activation, out);
  }
}

template <int Rows, int Blocks>
void Linear::apply_part(const QuantisedRows& x, int64_t first_row, int64_t tile, int first_block,
                        Activation activation, float* out) const {
  const int64_t first_output = (tile * kTileBlocks + first_block) * kLanes;
  // The rows of a wide output lie pages apart: asked for now, they are here when the sums are ready.
  for (int r = 0; r < Rows; ++r)
    for (int block = 0; block < Blocks; ++block)
      __builtin_prefetch(out + (first_row + r) * outputs_ + first_output + block * kLanes, 1);
  int32_t totals[Rows][Blocks][kLanes];
  add_up<Rows, Blocks>(x.row(first_row), x.stride(), first_output, totals);
  for (int block = 0; block < Blocks; ++block) {
    const int64_t output = first_output + block * kLanes;
    const int count = static_cast<int>(std::min<int64_t>(kLanes, outputs_ - output));
    if (count <= 0) break;
    const Ints zero = load(zero_.get() + output);
    const Floats scale = load(scales_.get() + output), bias = load(bias_.get() + output);
    for (int r = 0; r < Rows; ++r) {
      const Floats product = to_floats(load(totals[r][block]) - zero * splat(x.zero(first_row + r))) * scale;
      const Floats y = activate(fma(product, splat(x.largest(first_row + r)), bias), activation);
      float* place = out + (first_row + r) * outputs_ + output;
      if (count == kLanes)
        store(place, y);
      else
        store_first(place, y, count);
    }
  }
}

// The sums of products of rows with blocks of sixteen outputs. Its loops must unroll, or the sums leave the registers.
template <int Rows, int Blocks>
void Linear::add_up(const uint8_t* bytes, int64_t stride, int64_t first_output,
                    int32_t (&totals)[Rows][Blocks][kLanes]) const {
  constexpr int64_t kStep = kTileBlocks * kBlockBytes;
  const int64_t tile = first_output / kTileOutputs, first_block = first_output % kTileOutputs / kLanes;
  const int8_t* weights = weights_.get() + tile * groups_ * kStep + first_block * kBlockBytes;
  Sums sums[Rows][Blocks];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int block = 0; block < Blocks; ++block) sums[r][block] = no_sums();
  for (int64_t group = 0; group < groups_; ++group) {
    if constexpr (Blocks == kTileBlocks)
      for (int block = 0; block < Blocks; ++block) __builtin_prefetch(weights + kPrefetch + block * kBlockBytes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      uint32_t bytes_of_row;
      std::memcpy(&bytes_of_row, bytes + r * stride + group * kGroup, kGroup);
      const Four four = spread(bytes_of_row);
#pragma GCC unroll 16
      for (int block = 0; block < Blocks; ++block) add_products(sums[r][block], weights + block * kBlockBytes, four);
    }
    weights += kStep;
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int block = 0; block < Blocks; ++block) store(totals[r][block], total(sums[r][block]));
}

}  // namespace ibidem

// A layer of weights [outputs, inputs], scales [outputs] and a bias [outputs] or none; null where there is no room.
IBIDEM_EXPORT void* ibidem_linear_new(const int8_t* weights, const float* scales, const float* bias, int64_t inputs,
                                      int64_t outputs) {
  return ibidem::guard([&] { return new ibidem::Linear(weights, scales, bias, inputs, outputs); });
}

IBIDEM_EXPORT void ibidem_linear_free(void* linear) { delete static_cast<ibidem::Linear*>(linear); }

// x: [rows, inputs]; out: [rows, outputs]. 0 where there is no room to work in.
IBIDEM_EXPORT int ibidem_linear_apply(const void* linear, const float* x, int64_t rows, int activation, float* out,
                                      int threads) {
  static thread_local ibidem::QuantisedRows quantised;
  return ibidem::guard([&] {
    auto* layer = static_cast<const ibidem::Linear*>(linear);
    quantised.set(x, rows, layer->inputs(), threads);
    layer->apply(quantised, static_cast<ibidem::Activation>(activation), out, threads);
    return 1;
  });
}
