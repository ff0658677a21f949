// The Compact Network applied to the few states of a step: two layers with an activation between them, in float32.
//
// The weights are read once for all rows, sixteen outputs a register. A sum is always made in the order of the inputs, so
// that what comes of a row does not depend on the rows beside it.
#include <algorithm>
#include <cstdint>

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

class Layer {
 public:
  // weights: [outputs, inputs]; bias: [outputs].
  Layer(const float* weights, const float* bias, int64_t inputs, int64_t outputs)
      : inputs_(inputs),
        outputs_(outputs),
        tiles_((outputs + kTileOutputs - 1) / kTileOutputs),
        weights_(tiles_ * inputs * kTileOutputs),
        bias_(tiles_ * kTileOutputs) {
    for (int64_t n = 0; n < tiles_ * kTileOutputs; ++n) {
      bias_[n] = n < outputs ? bias[n] : 0.0f;
      float* place = weights_.get() + n / kTileOutputs * inputs * kTileOutputs + n % kTileOutputs;
      for (int64_t i = 0; i < inputs; ++i) place[i * kTileOutputs] = n < outputs ? weights[n * inputs + i] : 0.0f;
    }
  }

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t tiles() const { return tiles_; }

  // Some tiles of the outputs of all rows; x: [rows, inputs]; out: [rows, outputs].
  void apply(const float* x, int64_t rows, int64_t begin, int64_t end, Activation how, float* out) const {
    for (int64_t tile = begin; tile < end; ++tile) {
      int64_t row = 0;
      for (; row + kRows <= rows; row += kRows) apply_tile<kRows>(x + row * inputs_, tile, how, out + row * outputs_);
      apply_rest<kRows - 1>(x + row * inputs_, rows - row, tile, how, out + row * outputs_);
    }
  }

 private:
  template <int Rows>
  void apply_rest(const float* x, int64_t rows, int64_t tile, Activation how, float* out) const {
    if constexpr (Rows > 0) {
      if (rows == Rows) return apply_tile<Rows>(x, tile, how, out);
      apply_rest<Rows - 1>(x, rows, tile, how, out);
    }
  }

  // Its loops must unroll, or the sums leave the registers.
  template <int Rows>
  void apply_tile(const float* x, int64_t tile, Activation how, float* out) const {
    Floats sums[Rows][kBlocks];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = load(bias_.get() + tile * kTileOutputs + b * kLanes);
    const float* weights = weights_.get() + tile * inputs_ * kTileOutputs;
    for (int64_t i = 0; i < inputs_; ++i, weights += kTileOutputs) {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const Floats here = splat(x[r * inputs_ + i]);
#pragma GCC unroll 16
        for (int b = 0; b < kBlocks; ++b) sums[r][b] = fma(here, load(weights + b * kLanes), sums[r][b]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) {
        const int64_t output = tile * kTileOutputs + b * kLanes;
        const int64_t count = std::min<int64_t>(kLanes, outputs_ - output);
        if (count > 0) store_first(out + r * outputs_ + output, activate(sums[r][b], how), static_cast<int>(count));
      }
  }

  int64_t inputs_, outputs_, tiles_;
  Kept<float> weights_;  // [tiles, inputs, outputs of a tile]
  Kept<float> bias_;
};

}  // namespace

class Compactor {
 public:
  Compactor(Layer inner, Layer outer, Activation how) : inner_(std::move(inner)), outer_(std::move(outer)), how_(how) {}

  void apply(const float* x, int64_t rows, float* out, int64_t threads) const {
    static thread_local Scratch<float> room;
    float* hidden = room.of(rows * inner_.outputs());
    if (rows >= kManyRows) {
      share(threads, rows, [&](int64_t begin, int64_t end) {
        float* own = hidden + begin * inner_.outputs();
        inner_.apply(x + begin * inner_.inputs(), end - begin, 0, inner_.tiles(), how_, own);
        outer_.apply(own, end - begin, 0, outer_.tiles(), Activation::kNone, out + begin * outer_.outputs());
      });
      return;
    }
    share(threads, inner_.tiles(),
          [&](int64_t begin, int64_t end) { inner_.apply(x, rows, begin, end, how_, hidden); });
    outer_.apply(hidden, rows, 0, outer_.tiles(), Activation::kNone, out);
  }

 private:
  Layer inner_, outer_;
  Activation how_;
};

}  // namespace ibidem

// Weights [hidden, inputs] and [outputs, hidden] with their biases; null where there is no room.
IBIDEM_EXPORT void* ibidem_compactor_new(const float* inner_weight, const float* inner_bias, const float* outer_weight,
                                         const float* outer_bias, int64_t inputs, int64_t hidden, int64_t outputs,
                                         int activation) {
  using namespace ibidem;
  return guard([&] {
    return new Compactor(Layer(inner_weight, inner_bias, inputs, hidden),
                         Layer(outer_weight, outer_bias, hidden, outputs), static_cast<Activation>(activation));
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
