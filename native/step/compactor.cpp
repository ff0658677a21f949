// Linear and two-layer compactors. The first layer of a network, nearly all of its work, computes in float32 or int16.
//
// The weights are read once for all rows, 16 outputs a register. A sum is always computed in the order of the inputs, so that
// the result of a row does not depend on other rows.
#include "step/compactor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "model/activation.h"
#include "simd/simd.h"

namespace ibidem {
namespace {

constexpr int kBlocks = std::max(2, kTileBlocks);
constexpr int kTileOutputs = kBlocks * kLanes;
constexpr int kRows = std::max(3, kSums / kBlocks);
// From this many rows on each thread computes some rows, below some outputs.
constexpr int64_t kManyRows = 8 * kRows;

// Rows use all 16 bits. Weights use fewer, so that sums rarely force a row to a coarser step: see Rows.
constexpr float kLargestOfRow = 32767.0f, kLargestOfWeight = 8191.0f;
// The bound on sums, which leaves a margin for rounding.
constexpr float kLargestSum = 2.0e9f;
constexpr float kLeastStep = std::numeric_limits<float>::min();

// The inputs of one multiplication; the register of sums for 16 outputs, and one sum.
template <class Number>
constexpr int kInputs = sizeof(float) / sizeof(Number);
template <class Number>
using Register = std::conditional_t<std::is_same_v<Number, float>, Floats, Ints>;
template <class Number>
using Total = std::conditional_t<std::is_same_v<Number, float>, float, int32_t>;

// Broadcasts the inputs of one multiplication; adds their products with the weights of 16 outputs to sums.
inline Floats spread_inputs(const float* x) { return splat(*x); }
inline Ints spread_inputs(const int16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  return splat(pair);
}
inline Floats add_products(Floats sums, const float* weights, Floats x) { return fma(x, load(weights), sums); }
inline Ints add_products(Ints sums, const int16_t* weights, Ints x) { return add_pairs(sums, weights, x); }

// Rows of inputs in the number type of the multiplication.
template <class Number>
class Rows;

template <>
class Rows<float> {
 public:
  void clear(int64_t count, int64_t, float) {
    count_ = count;
    rows_ = buffer_.of(count);
  }
  void set(int64_t r, const float* x) { rows_[r] = x; }

  int64_t count() const { return count_; }
  const float* row(int64_t r) const { return rows_[r]; }

 private:
  int64_t count_;
  const float** rows_;
  Scratch<const float*> buffer_;
};

// Each row has its own step, the smallest with which its numbers fit and no sum overflows: the product of the norms of a row
// and of the weights bounds every partial sum. A row that is not finite has the step NaN.
template <>
class Rows<int16_t> {
 public:
  // norm: the largest norm of the weights of an output, in steps.
  void clear(int64_t count, int64_t inputs, float norm) {
    count_ = count;
    inputs_ = inputs;
    norm_ = norm;
    stride_ = (inputs + kLanes - 1) / kLanes * kLanes;
    numbers_ = numbers_buffer_.of(count * stride_);
    steps_ = steps_buffer_.of(count);
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
    const float step = std::max({largest(most) / kLargestOfRow, std::sqrt(square) / kLargestSum * norm_, kLeastStep});
    const Floats inverse = splat(finite ? 1.0f / step : 0.0f);
    int16_t* numbers = numbers_ + r * stride_;
    for (int64_t i = 0; i < inputs_; i += kLanes) store_shorts(numbers + i, finite ? round_to_ints(at(i) * inverse) : splat(0));
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
  Scratch<int16_t> numbers_buffer_;
  Scratch<float> steps_buffer_;
};

template <class Number>
class Layer {
 public:
  // weights: [outputs, inputs]; bias: [outputs].
  Layer(const float* weights, const float* bias, int64_t inputs, int64_t outputs)
      : inputs_(inputs),
        outputs_(outputs),
        tiles_((outputs + kTileOutputs - 1) / kTileOutputs),
        strides_((inputs + kInputs<Number> - 1) / kInputs<Number>),
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

  // Computes some tiles of outputs for all rows; out: where the outputs of each row go.
  void apply(const Rows<Number>& x, int64_t begin, int64_t end, Activation activation, float* const* out) const {
    for (int64_t tile = begin; tile < end; ++tile) {
      int64_t row = 0;
      for (; row + kRows <= x.count(); row += kRows) apply_tile<kRows>(x, row, tile, activation, out);
      apply_rest<kRows - 1>(x, row, tile, activation, out);
    }
  }

 private:
  // The weights of a tile for the inputs of one multiplication.
  static constexpr int64_t kStride = int64_t{kTileOutputs} * kInputs<Number>;

  void set_weights(const float* weights, int64_t output) {
    if constexpr (!std::is_same_v<Number, float>) {
      float largest = 0;
      for (int64_t i = 0; i < inputs_; ++i) largest = std::max(largest, std::abs(weights[i]));
      steps_[output] = std::max(largest / kLargestOfWeight, kLeastStep);
    }
    Number* place = weights_.get() + output / kTileOutputs * strides_ * kStride + output % kTileOutputs * kInputs<Number>;
    double square = 0;
    for (int64_t i = 0; i < inputs_; ++i) {
      Number& number = place[i / kInputs<Number> * kStride + i % kInputs<Number>];
      if constexpr (std::is_same_v<Number, float>)
        number = weights[i];
      else
        number = static_cast<Number>(std::nearbyint(weights[i] / steps_[output]));
      square += static_cast<double>(number) * number;
    }
    norm_ = std::max(norm_, static_cast<float>(std::sqrt(square)));
  }

  template <int Count>
  void apply_rest(const Rows<Number>& x, int64_t row, int64_t tile, Activation activation, float* const* out) const {
    if constexpr (Count > 0) {
      if (x.count() - row == Count) return apply_tile<Count>(x, row, tile, activation, out);
      apply_rest<Count - 1>(x, row, tile, activation, out);
    }
  }

  template <int Count>
  void apply_tile(const Rows<Number>& x, int64_t row, int64_t tile, Activation activation, float* const* out) const {
    Total<Number> totals[Count][kBlocks][kLanes];
    multiply(x, row, weights_.get() + tile * strides_ * kStride, totals);
    for (int b = 0; b < kBlocks; ++b) {
      const int64_t output = tile * kTileOutputs + b * kLanes;
      const int count = static_cast<int>(std::min<int64_t>(kLanes, outputs_ - output));
      if (count <= 0) break;
      for (int r = 0; r < Count; ++r) {
        const Floats output_values = rescale(load(totals[r][b]), x, row + r, output) + load(bias_.get() + output);
        store_first(out[row + r] + output, activate(output_values, activation), count);
      }
    }
  }

  // Multiplies some rows with the weights of a tile. The loops must be unrolled to keep the sums in registers.
  template <int Count>
  void multiply(const Rows<Number>& x, int64_t row, const Number* weights,
                Total<Number> (&totals)[Count][kBlocks][kLanes]) const {
    const Number* inputs[Count];
    Register<Number> sums[Count][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r) {
      inputs[r] = x.row(row + r);
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = splat(Total<Number>{0});
    }
    for (int64_t i = 0; i < strides_; ++i) {
#pragma GCC unroll 16
      for (int r = 0; r < Count; ++r) {
        const Register<Number> here = spread_inputs(inputs[r] + i * kInputs<Number>);
#pragma GCC unroll 16
        for (int b = 0; b < kBlocks; ++b) sums[r][b] = add_products(sums[r][b], weights + b * kLanes * kInputs<Number>, here);
      }
      weights += kStride;
    }
#pragma GCC unroll 16
    for (int r = 0; r < Count; ++r)
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) store(totals[r][b], sums[r][b]);
  }

  Floats rescale(Floats sums, const Rows<float>&, int64_t, int64_t) const { return sums; }
  Floats rescale(Ints sums, const Rows<int16_t>& x, int64_t row, int64_t output) const {
    return to_floats(sums) * (splat(x.step(row)) * load(steps_.get() + output));
  }

  int64_t inputs_, outputs_, tiles_, strides_;
  HugePageBuffer<Number> weights_;  // [tiles, inputs / kInputs, outputs of a tile, kInputs]
  HugePageBuffer<float> steps_, bias_;
  float norm_ = 0;  // the largest norm of the weights of an output, in steps
};

// The rows of states that are compacted, and where their results go.
class RowPointers {
 public:
  RowPointers(const float* states, const int64_t* rows, int64_t count, int64_t inputs, float* out, int64_t outputs) {
    static thread_local Scratch<const float*> in_buffer;
    static thread_local Scratch<float*> out_buffer;
    in_ = in_buffer.of(count);
    out_ = out_buffer.of(count);
    for (int64_t r = 0; r < count; ++r) {
      in_[r] = states + rows[r] * inputs;
      out_[r] = out + rows[r] * outputs;
    }
  }
  const float* const* in() const { return in_; }
  float* const* out() const { return out_; }

 private:
  const float** in_;
  float** out_;
};

// Rows in the number type of a layer. They belong to this thread and are valid until its next call.
template <class Number>
const Rows<Number>& prepare(const Layer<Number>& layer, const float* const* x, int64_t count) {
  static thread_local Rows<Number> rows;
  layer.set(rows, x, count);
  return rows;
}

class LinearCompactor final : public Compactor {
 public:
  explicit LinearCompactor(Layer<float> layer) : layer_(std::move(layer)) {}

  void compact(const float* states, const int64_t* rows, int64_t count, float* out, int64_t threads) const override {
    const RowPointers pointers(states, rows, count, layer_.inputs(), out, layer_.outputs());
    parallel_for(threads_for(threads, count, kManyRows / 2), count, [&](int64_t begin, int64_t end) {
      const Rows<float>& given = prepare(layer_, pointers.in() + begin, end - begin);
      layer_.apply(given, 0, layer_.tiles(), Activation::kNone, pointers.out() + begin);
    });
  }

 private:
  Layer<float> layer_;
};

template <class Number>
class NetworkCompactor final : public Compactor {
 public:
  NetworkCompactor(Layer<Number> inner, Layer<float> outer, Activation activation)
      : inner_(std::move(inner)), outer_(std::move(outer)), activation_(activation) {}

  void compact(const float* states, const int64_t* rows, int64_t count, float* out, int64_t threads) const override {
    static thread_local Scratch<float> hidden_buffer;
    static thread_local Scratch<float*> hidden_rows;
    const RowPointers pointers(states, rows, count, inner_.inputs(), out, outer_.outputs());
    float *hidden = hidden_buffer.of(count * inner_.outputs()), **in_hidden = hidden_rows.of(count);
    for (int64_t r = 0; r < count; ++r) in_hidden[r] = hidden + r * inner_.outputs();
    if (count >= kManyRows) {
      parallel_for(threads, count, [&](int64_t begin, int64_t end) {
        const Rows<Number>& given = prepare(inner_, pointers.in() + begin, end - begin);
        inner_.apply(given, 0, inner_.tiles(), activation_, in_hidden + begin);
        project(in_hidden + begin, end - begin, pointers.out() + begin);
      });
      return;
    }
    const Rows<Number>& given = prepare(inner_, pointers.in(), count);
    parallel_for(threads, inner_.tiles(),
                 [&](int64_t begin, int64_t end) { inner_.apply(given, begin, end, activation_, in_hidden); });
    project(in_hidden, count, pointers.out());
  }

 private:
  void project(const float* const* hidden, int64_t count, float* const* out) const {
    outer_.apply(prepare(outer_, hidden, count), 0, outer_.tiles(), Activation::kNone, out);
  }

  Layer<Number> inner_;
  Layer<float> outer_;
  Activation activation_;
};

template <class Number>
Compactor* make_network(const float* inner_weight, const float* inner_bias, const float* outer_weight, const float* outer_bias,
                        int64_t inputs, int64_t hidden, int64_t outputs, Activation activation) {
  return new NetworkCompactor<Number>({inner_weight, inner_bias, inputs, hidden}, {outer_weight, outer_bias, hidden, outputs},
                                      activation);
}

}  // namespace
}  // namespace ibidem

// Makes a network of weights [hidden, inputs] and [outputs, hidden] with their biases; int16: computes the first layer in
// int16. Returns null when out of memory.
IBIDEM_EXPORT void* ibidem_compactor_new_network(const float* inner_weight, const float* inner_bias, const float* outer_weight,
                                                 const float* outer_bias, int64_t inputs, int64_t hidden, int64_t outputs,
                                                 int activation, int int16) {
  using namespace ibidem;
  return noexcept_call([&] {
    const auto make = int16 ? make_network<int16_t> : make_network<float>;
    return make(inner_weight, inner_bias, outer_weight, outer_bias, inputs, hidden, outputs,
                static_cast<Activation>(activation));
  });
}

// Makes a linear map of a weight [outputs, inputs] and a bias [outputs]. Returns null when out of memory.
IBIDEM_EXPORT void* ibidem_compactor_new_linear(const float* weight, const float* bias, int64_t inputs, int64_t outputs) {
  using namespace ibidem;
  return noexcept_call([&]() -> Compactor* { return new LinearCompactor({weight, bias, inputs, outputs}); });
}

IBIDEM_EXPORT void ibidem_compactor_free(void* compactor) { delete static_cast<ibidem::Compactor*>(compactor); }

// states: [rows, inputs]; out: [rows, outputs]. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_compactor_apply(const void* compactor, const float* states, int64_t rows, float* out, int threads) {
  return ibidem::noexcept_call([&] {
    std::vector<int64_t> all(rows);
    std::iota(all.begin(), all.end(), 0);
    static_cast<const ibidem::Compactor*>(compactor)->compact(states, all.data(), rows, out, threads);
    return 1;
  });
}
