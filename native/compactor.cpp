// The Compact Network applied to the few states of a step: two layers with an activation between them. The first one, nearly
// all of the work, in float32 or in whole numbers of sixteen bits, the second in float32.
//
// The weights are read once for all rows, sixteen outputs a register. A sum is always made in the order of the inputs, so
// that what comes of a row does not depend on the rows beside it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "activation.h"
#include "buffer.h"
#include "exports.h"
#include "guard.h"
#include "simd.h"
#include "team.h"

namespace ibidem {
namespace {

constexpr int kBlocks = std::max(2, kTileBlocks);
constexpr int kTileOutputs = kBlocks * kLanes;
constexpr int kRows = std::max(3, kSums / kBlocks);
// With so many rows threads share the rows, and with fewer the outputs.
constexpr int64_t kManyRows = 8 * kRows;

// Sixteen bits are used whole for rows. Weights have fewer, so that hardly a row must do with less: see Rows.
constexpr float kMostOfRow = 32767.0f, kMostOfWeight = 8191.0f;
// What a sum may reach, and something left for rounding.
constexpr float kMostOfSum = 2.0e9f;

// Inputs that are multiplied at once, and the sum of their products with sixteen outputs.
template <class Number>
constexpr int kTogether = sizeof(float) / sizeof(Number);
template <class Number>
using SumOf = std::conditional_t<std::is_same_v<Number, float>, Floats, Ints>;

template <class Number>
using Total = std::conditional_t<std::is_same_v<Number, float>, float, int32_t>;

// The inputs that are multiplied at once, the same for all lanes; their products with sixteen outputs, added to sums.
inline Floats spread_inputs(const float* x) { return splat(*x); }
inline Ints spread_inputs(const int16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  return splat(pair);
}
inline Floats add_products(Floats sums, const float* weights, Floats x) { return fma(x, load(weights), sums); }
inline Ints add_products(Ints sums, const int16_t* weights, Ints x) { return add_pairs(sums, weights, x); }

// Rows of inputs as they are multiplied; norm: the largest of the weights of an output, in steps.
template <class Number>
class Rows;

template <>
class Rows<float> {
 public:
  Rows(const float* x, int64_t rows, int64_t inputs, float) : x_(x), rows_(rows), inputs_(inputs) {}
  int64_t count() const { return rows_; }
  int64_t stride() const { return inputs_; }
  const float* row(int64_t r) const { return x_ + r * inputs_; }

 private:
  const float* x_;
  int64_t rows_, inputs_;
};

// Each row has its own step, the smallest with which its numbers fit and no sum can overflow: the product of two norms is
// more than any part of a sum. Where a row is not finite, its step is NaN.
template <>
class Rows<int16_t> {
 public:
  Rows(const float* x, int64_t rows, int64_t inputs, float norm)
      : rows_(rows), stride_((inputs + kLanes - 1) / kLanes * kLanes) {
    static thread_local Scratch<int16_t> numbers;
    static thread_local Scratch<float> steps;
    numbers_ = numbers.of(rows * stride_);
    steps_ = steps.of(rows);
    for (int64_t r = 0; r < rows; ++r) steps_[r] = set_row(x + r * inputs, inputs, norm, numbers_ + r * stride_);
  }
  int64_t count() const { return rows_; }
  int64_t stride() const { return stride_; }
  const int16_t* row(int64_t r) const { return numbers_ + r * stride_; }
  float step(int64_t r) const { return steps_[r]; }

 private:
  static float set_row(const float* x, int64_t inputs, float norm, int16_t* numbers) {
    auto at = [&](int64_t i) { return load_first(x + i, static_cast<int>(std::min<int64_t>(kLanes, inputs - i))); };
    Floats most = splat(0.0f), squares = splat(0.0f);
    for (int64_t i = 0; i < inputs; i += kLanes) {
      most = max(most, abs(at(i)));
      squares = fma(at(i), at(i), squares);
    }
    const float square = sum(squares);
    const bool finite = std::isfinite(square);
    const float step = std::max({largest(most) / kMostOfRow, std::sqrt(square) / kMostOfSum * norm, kLeastStep});
    const Floats inverse = splat(finite ? 1.0f / step : 0.0f);
    for (int64_t i = 0; i < inputs; i += kLanes) {
      int32_t whole[kLanes];
      store(whole, finite ? round_to_ints(at(i) * inverse) : splat(0));
      for (int lane = 0; lane < kLanes; ++lane) numbers[i + lane] = static_cast<int16_t>(whole[lane]);
    }
    return finite ? step : std::numeric_limits<float>::quiet_NaN();
  }

  static constexpr float kLeastStep = std::numeric_limits<float>::min();

  int64_t rows_, stride_;
  int16_t* numbers_;
  float* steps_;
};

template <class Number>
class Layer {
 public:
  // weights: [outputs, inputs]; bias: [outputs].
  Layer(const float* weights, const float* bias, int64_t inputs, int64_t outputs)
      : inputs_(inputs),
        outputs_(outputs),
        tiles_((outputs + kTileOutputs - 1) / kTileOutputs),
        strides_((inputs + kTogether<Number> - 1) / kTogether<Number>),
        weights_(tiles_ * strides_ * kStride),
        steps_(tiles_ * kTileOutputs),
        bias_(tiles_ * kTileOutputs) {
    std::fill_n(weights_.get(), tiles_ * strides_ * kStride, Number{0});
    for (int64_t n = 0; n < tiles_ * kTileOutputs; ++n) {
      steps_[n] = 1.0f;
      bias_[n] = n < outputs ? bias[n] : 0.0f;
      if (n < outputs) set_weights(weights + n * inputs, n);
    }
  }

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t tiles() const { return tiles_; }

  Rows<Number> given(const float* x, int64_t rows) const { return {x, rows, inputs_, norm_}; }

  // Some tiles of the outputs of all rows; out: [rows, outputs].
  void apply(const Rows<Number>& x, int64_t begin, int64_t end, Activation how, float* out) const {
    for (int64_t tile = begin; tile < end; ++tile) {
      int64_t row = 0;
      for (; row + kRows <= x.count(); row += kRows) apply_tile<kRows>(x, row, tile, how, out);
      apply_rest<kRows - 1>(x, row, tile, how, out);
    }
  }

 private:
  // Numbers of a tile for the inputs that are multiplied at once.
  static constexpr int64_t kStride = int64_t{kTileOutputs} * kTogether<Number>;

  void set_weights(const float* weights, int64_t output) {
    if constexpr (!std::is_same_v<Number, float>) {
      float most = 0;
      for (int64_t i = 0; i < inputs_; ++i) most = std::max(most, std::abs(weights[i]));
      steps_[output] = std::max(most / kMostOfWeight, std::numeric_limits<float>::min());
    }
    Number* place = weights_.get() + output / kTileOutputs * strides_ * kStride + output % kTileOutputs * kTogether<Number>;
    double square = 0;
    for (int64_t i = 0; i < inputs_; ++i) {
      Number& number = place[i / kTogether<Number> * kStride + i % kTogether<Number>];
      if constexpr (std::is_same_v<Number, float>)
        number = weights[i];
      else
        number = static_cast<Number>(std::nearbyint(weights[i] / steps_[output]));
      square += static_cast<double>(number) * number;
    }
    norm_ = std::max(norm_, static_cast<float>(std::sqrt(square)));
  }

  template <int Count>
  void apply_rest(const Rows<Number>& x, int64_t row, int64_t tile, Activation how, float* out) const {
    if constexpr (Count > 0) {
      if (x.count() - row == Count) return apply_tile<Count>(x, row, tile, how, out);
      apply_rest<Count - 1>(x, row, tile, how, out);
    }
  }

  template <int Count>
  void apply_tile(const Rows<Number>& x, int64_t row, int64_t tile, Activation how, float* out) const {
    Total<Number> totals[Count][kBlocks][kLanes];
    multiply(weights_.get() + tile * strides_ * kStride, x, row, totals);
    for (int b = 0; b < kBlocks; ++b) {
      const int64_t output = tile * kTileOutputs + b * kLanes;
      const int count = static_cast<int>(std::min<int64_t>(kLanes, outputs_ - output));
      if (count <= 0) break;
      for (int r = 0; r < Count; ++r) {
        const Floats made = worth(load(totals[r][b]), x, row + r, output) + load(bias_.get() + output);
        store_first(out + (row + r) * outputs_ + output, activate(made, how), count);
      }
    }
  }

  // The sums of the products of some rows with the weights of a tile. Its loops must unroll, or the sums leave the registers.
  template <int Count>
  void multiply(const Number* weights, const Rows<Number>& x, int64_t row,
                Total<Number> (&totals)[Count][kBlocks][kLanes]) const {
    const Number* rows = x.row(row);
    const int64_t stride = x.stride();
    SumOf<Number> sums[Count][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r)
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = splat(Total<Number>{0});
    for (int64_t i = 0; i < strides_; ++i) {
#pragma GCC unroll 16
      for (int r = 0; r < Count; ++r) {
        const SumOf<Number> here = spread_inputs(rows + r * stride + i * kTogether<Number>);
#pragma GCC unroll 16
        for (int b = 0; b < kBlocks; ++b)
          sums[r][b] = add_products(sums[r][b], weights + b * kLanes * kTogether<Number>, here);
      }
      weights += kStride;
    }
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r)
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) store(totals[r][b], sums[r][b]);
  }

  Floats worth(Floats sums, const Rows<float>&, int64_t, int64_t) const { return sums; }
  Floats worth(Ints sums, const Rows<int16_t>& x, int64_t row, int64_t output) const {
    return to_floats(sums) * (splat(x.step(row)) * load(steps_.get() + output));
  }

  int64_t inputs_, outputs_, tiles_, strides_;
  Kept<Number> weights_;  // [tiles, inputs by those at once, outputs of a tile, those at once]
  Kept<float> steps_, bias_;
  float norm_ = 0;  // the largest of the weights of an output, in steps
};

}  // namespace

class Compactor {
 public:
  virtual ~Compactor() = default;
  virtual void apply(const float* x, int64_t rows, float* out, int64_t threads) const = 0;
};

namespace {

template <class Number>
class CompactorIn final : public Compactor {
 public:
  CompactorIn(Layer<Number> inner, Layer<float> outer, Activation how)
      : inner_(std::move(inner)), outer_(std::move(outer)), how_(how) {}

  void apply(const float* x, int64_t rows, float* out, int64_t threads) const override {
    static thread_local Scratch<float> room;
    float* hidden = room.of(rows * inner_.outputs());
    if (rows >= kManyRows) {
      share(threads, rows, [&](int64_t begin, int64_t end) {
        float* own = hidden + begin * inner_.outputs();
        inner_.apply(inner_.given(x + begin * inner_.inputs(), end - begin), 0, inner_.tiles(), how_, own);
        project(own, end - begin, out + begin * outer_.outputs());
      });
      return;
    }
    const auto given = inner_.given(x, rows);
    share(threads, inner_.tiles(), [&](int64_t begin, int64_t end) { inner_.apply(given, begin, end, how_, hidden); });
    project(hidden, rows, out);
  }

 private:
  void project(const float* hidden, int64_t rows, float* out) const {
    outer_.apply(outer_.given(hidden, rows), 0, outer_.tiles(), Activation::kNone, out);
  }

  Layer<Number> inner_;
  Layer<float> outer_;
  Activation how_;
};

}  // namespace

}  // namespace ibidem

// Weights [hidden, inputs] and [outputs, hidden] with their biases; whole: the first layer in whole numbers. Null where there is
// no room.
IBIDEM_EXPORT void* ibidem_compactor_new(const float* inner_weight, const float* inner_bias, const float* outer_weight,
                                         const float* outer_bias, int64_t inputs, int64_t hidden, int64_t outputs,
                                         int activation, int whole) {
  using namespace ibidem;
  return guard([&]() -> Compactor* {
    const auto how = static_cast<Activation>(activation);
    Layer<float> outer(outer_weight, outer_bias, hidden, outputs);
    if (whole) return new CompactorIn<int16_t>({inner_weight, inner_bias, inputs, hidden}, std::move(outer), how);
    return new CompactorIn<float>({inner_weight, inner_bias, inputs, hidden}, std::move(outer), how);
  });
}

IBIDEM_EXPORT void ibidem_compactor_free(void* compactor) { delete static_cast<ibidem::Compactor*>(compactor); }

// x: [rows, inputs]; out: [rows, outputs]. 0 where there is no room.
IBIDEM_EXPORT int ibidem_compactor_apply(const void* compactor, const float* x, int64_t rows, float* out, int threads) {
  return ibidem::guard([&] {
    static_cast<const ibidem::Compactor*>(compactor)->apply(x, rows, out, threads);
    return 1;
  });
}
