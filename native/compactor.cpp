// Two layers with an activation between them. The first one, nearly all of the work, in float32 or in whole numbers of sixteen
// bits, the second in float32.
//
// The weights are read once for all rows, sixteen outputs a register. A sum is always made in the order of the inputs, so
// that what comes of a row does not depend on the rows beside it.
#include "compactor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

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
constexpr float kLeastStep = std::numeric_limits<float>::min();

// Inputs that are multiplied at once; the sums of their products with sixteen outputs, and one of these sums.
template <class Number>
constexpr int kTogether = sizeof(float) / sizeof(Number);
template <class Number>
using Sixteen = std::conditional_t<std::is_same_v<Number, float>, Floats, Ints>;
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

// Rows of inputs as they are multiplied.
template <class Number>
class Rows;

template <>
class Rows<float> {
 public:
  void clear(int64_t count, int64_t, float) {
    count_ = count;
    rows_ = room_.of(count);
  }
  void set(int64_t r, const float* x) { rows_[r] = x; }

  int64_t count() const { return count_; }
  const float* row(int64_t r) const { return rows_[r]; }

 private:
  int64_t count_;
  const float** rows_;
  Scratch<const float*> room_;
};

// Each row has its own step, the smallest with which its numbers fit and no sum can overflow: the product of the norms of a
// row and of weights is more than any part of their sum. Where a row is not finite, its step is NaN.
template <>
class Rows<int16_t> {
 public:
  // norm: the largest of the weights of an output, in their steps.
  void clear(int64_t count, int64_t inputs, float norm) {
    count_ = count;
    inputs_ = inputs;
    norm_ = norm;
    stride_ = (inputs + kLanes - 1) / kLanes * kLanes;
    numbers_ = numbers_room_.of(count * stride_);
    steps_ = steps_room_.of(count);
  }

  void set(int64_t r, const float* x) {
    auto at = [&](int64_t i) { return load_first(x + i, static_cast<int>(std::min<int64_t>(kLanes, inputs_ - i))); };
    Floats most = splat(0.0f), squares = splat(0.0f);
    for (int64_t i = 0; i < inputs_; i += kLanes) {
      most = max(most, abs(at(i)));
      squares = fma(at(i), at(i), squares);
    }
    const float square = sum(squares);
    const bool finite = std::isfinite(square);
    const float step = std::max({largest(most) / kMostOfRow, std::sqrt(square) / kMostOfSum * norm_, kLeastStep});
    const Floats inverse = splat(finite ? 1.0f / step : 0.0f);
    int16_t* numbers = numbers_ + r * stride_;
    for (int64_t i = 0; i < inputs_; i += kLanes)
      store_shorts(numbers + i, finite ? round_to_ints(at(i) * inverse) : splat(0));
    steps_[r] = finite ? step : std::numeric_limits<float>::quiet_NaN();
  }

  int64_t count() const { return count_; }
  const int16_t* row(int64_t r) const { return numbers_ + r * stride_; }
  float step(int64_t r) const { return steps_[r]; }

 private:
  int64_t count_, inputs_, stride_;
  float norm_;
  int16_t* numbers_;
  float* steps_;
  Scratch<int16_t> numbers_room_;
  Scratch<float> steps_room_;
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

  void set(Rows<Number>& rows, const float* const* x, int64_t count) const {
    rows.clear(count, inputs_, norm_);
    for (int64_t r = 0; r < count; ++r) rows.set(r, x[r]);
  }

  // Some tiles of the outputs of all rows, in these places.
  void apply(const Rows<Number>& x, int64_t begin, int64_t end, Activation how, float* const* out) const {
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
      steps_[output] = std::max(most / kMostOfWeight, kLeastStep);
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
  void apply_rest(const Rows<Number>& x, int64_t row, int64_t tile, Activation how, float* const* out) const {
    if constexpr (Count > 0) {
      if (x.count() - row == Count) return apply_tile<Count>(x, row, tile, how, out);
      apply_rest<Count - 1>(x, row, tile, how, out);
    }
  }

  template <int Count>
  void apply_tile(const Rows<Number>& x, int64_t row, int64_t tile, Activation how, float* const* out) const {
    Total<Number> totals[Count][kBlocks][kLanes];
    multiply(x, row, weights_.get() + tile * strides_ * kStride, totals);
    for (int b = 0; b < kBlocks; ++b) {
      const int64_t output = tile * kTileOutputs + b * kLanes;
      const int count = static_cast<int>(std::min<int64_t>(kLanes, outputs_ - output));
      if (count <= 0) break;
      for (int r = 0; r < Count; ++r) {
        const Floats made = worth(load(totals[r][b]), x, row + r, output) + load(bias_.get() + output);
        store_first(out[row + r] + output, activate(made, how), count);
      }
    }
  }

  // The sums of the products of some rows with the weights of a tile. Its loops must unroll, or the sums leave the registers.
  template <int Count>
  void multiply(const Rows<Number>& x, int64_t row, const Number* weights,
                Total<Number> (&totals)[Count][kBlocks][kLanes]) const {
    const Number* inputs[Count];
    Sixteen<Number> sums[Count][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r) {
      inputs[r] = x.row(row + r);
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = splat(Total<Number>{0});
    }
    for (int64_t i = 0; i < strides_; ++i) {
#pragma GCC unroll 16
      for (int r = 0; r < Count; ++r) {
        const Sixteen<Number> here = spread_inputs(inputs[r] + i * kTogether<Number>);
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

template <class Number>
class CompactorIn final : public Compactor {
 public:
  CompactorIn(Layer<Number> inner, Layer<float> outer, Activation how)
      : inner_(std::move(inner)), outer_(std::move(outer)), how_(how) {}

  void apply(const float* x, const int64_t* rows, int64_t count, float* out, int64_t threads) const override {
    static thread_local Scratch<float> room;
    static thread_local Scratch<float*> places;
    static thread_local Scratch<const float*> inputs;
    float *hidden = room.of(count * inner_.outputs()), **in_hidden = places.of(2 * count), **in_out = in_hidden + count;
    const float** states = inputs.of(count);
    for (int64_t r = 0; r < count; ++r) {
      states[r] = x + rows[r] * inner_.inputs();
      in_hidden[r] = hidden + r * inner_.outputs();
      in_out[r] = out + rows[r] * outer_.outputs();
    }
    if (count >= kManyRows) {
      share(threads, count, [&](int64_t begin, int64_t end) {
        inner_.apply(set(states + begin, end - begin), 0, inner_.tiles(), how_, in_hidden + begin);
        project(in_hidden + begin, end - begin, in_out + begin);
      });
      return;
    }
    const Rows<Number>& given = set(states, count);
    share(threads, inner_.tiles(), [&](int64_t begin, int64_t end) { inner_.apply(given, begin, end, how_, in_hidden); });
    project(in_hidden, count, in_out);
  }

 private:
  // The states as they are multiplied: of this thread, and good until its next ones.
  const Rows<Number>& set(const float* const* states, int64_t count) const {
    static thread_local Rows<Number> rows;
    inner_.set(rows, states, count);
    return rows;
  }

  void project(const float* const* hidden, int64_t count, float* const* out) const {
    static thread_local Rows<float> rows;
    outer_.set(rows, hidden, count);
    outer_.apply(rows, 0, outer_.tiles(), Activation::kNone, out);
  }

  Layer<Number> inner_;
  Layer<float> outer_;
  Activation how_;
};

template <class Number>
Compactor* make(const float* inner_weight, const float* inner_bias, const float* outer_weight, const float* outer_bias,
                int64_t inputs, int64_t hidden, int64_t outputs, Activation how) {
  return new CompactorIn<Number>({inner_weight, inner_bias, inputs, hidden}, {outer_weight, outer_bias, hidden, outputs},
                                 how);
}

}  // namespace
}  // namespace ibidem

// Weights [hidden, inputs] and [outputs, hidden] with their biases; whole: the first layer in whole numbers. Null where
// there is no room.
IBIDEM_EXPORT void* ibidem_compactor_new(const float* inner_weight, const float* inner_bias, const float* outer_weight,
                                         const float* outer_bias, int64_t inputs, int64_t hidden, int64_t outputs,
                                         int activation, int whole) {
  using namespace ibidem;
  return guard([&] {
    const auto made = whole ? make<int16_t> : make<float>;
    return made(inner_weight, inner_bias, outer_weight, outer_bias, inputs, hidden, outputs,
                static_cast<Activation>(activation));
  });
}

IBIDEM_EXPORT void ibidem_compactor_free(void* compactor) { delete static_cast<ibidem::Compactor*>(compactor); }

// x: [rows, inputs]; out: [rows, outputs]. 0 where there is no room.
IBIDEM_EXPORT int ibidem_compactor_apply(const void* compactor, const float* x, int64_t rows, float* out, int threads) {
  return ibidem::guard([&] {
    std::vector<int64_t> all(rows);
    std::iota(all.begin(), all.end(), 0);
    static_cast<const ibidem::Compactor*>(compactor)->apply(x, all.data(), rows, out, threads);
    return 1;
  });
}
