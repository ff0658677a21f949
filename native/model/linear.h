// A linear layer with int8 weights, and rows of activations quantised for it.
#pragma once

#include <cstdint>

#include "model/activation.h"
#include "base/buffer.h"
#include "simd/simd.h"

namespace ibidem {

// Rows of activations as bytes, each row with its own step and its own zero, so that no row depends on those beside it.
//
// The largest magnitude of a row stands apart, as a whole number of steps that no byte need hold: a single value is often
// many times as large as all others, and would make their steps coarse.
class QuantisedRows {
 public:
  // x: [rows, width]. A value becomes round(x / step) + zero, its row's largest one nothing, which is `zero`.
  void set(const float* x, int64_t rows, int64_t width, int64_t threads);

  int64_t rows() const { return rows_; }
  int64_t stride() const { return stride_; }
  const RowByte* row(int64_t r) const { return bytes_ + r * stride_; }
  // What one is worth; NaN where the row holds something that is not finite.
  float step(int64_t r) const { return facts_[r].step; }
  int32_t zero(int64_t r) const { return facts_[r].zero; }
  // The largest magnitude: where it stands, and how many steps it is.
  int64_t peak(int64_t r) const { return facts_[r].peak; }
  int32_t height(int64_t r) const { return facts_[r].height; }

 private:
  struct Facts {
    float step;
    int32_t zero, peak, height;
  };

  void set_row(const float* x, int64_t r, int64_t width);

  int64_t rows_ = 0, stride_ = 0;
  RowByte* bytes_ = nullptr;
  Facts* facts_ = nullptr;
  Scratch<RowByte> bytes_room_;
  Scratch<Facts> facts_room_;
};

class Linear {
 public:
  // weights: [outputs, inputs]; scales: [outputs]; bias: [outputs] or none.
  Linear(const int8_t* weights, const float* scales, const float* bias, int64_t inputs, int64_t outputs);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  // out: [rows, outputs]. Sums are exact, in int32. Rows with a step that is NaN give NaN.
  void apply(const QuantisedRows& x, Activation activation, float* out, int64_t threads) const;

 private:
  void pack(const int8_t* weights, int64_t tile);

  // The weights of one input, for sixteen outputs.
  Ints column(int64_t input, int64_t first_output) const;

  // Some blocks of a tile.
  template <class Weight>
  struct Part {
    int64_t first_output;
    const Weight* weights;
    int64_t step;  // from one group of four inputs to the next
  };
  Part<int8_t> part(int64_t tile, int first_block) const;
  // The same for many rows, as wide as they are multiplied; this thread's only one.
  template <int Blocks, class Wide = WideWeight>
  Part<Wide> widened(const Part<int8_t>& part) const;

  // The products of some rows with a part; of all rows; of the last ones, which are at most Rows.
  template <int Rows, int Blocks, class Weight>
  void apply_part(const QuantisedRows& x, int64_t first_row, const Part<Weight>& part, Activation activation,
                  float* out) const;
  template <int Rows, int Blocks, class Weight>
  void apply_all_rows(const QuantisedRows& x, const Part<Weight>& part, Activation activation, float* out) const;
  template <int Rows, int Blocks, class Weight>
  void apply_rows(const QuantisedRows& x, int64_t first_row, const Part<Weight>& part, Activation activation,
                  float* out) const;

  int64_t inputs_, outputs_, groups_, tiles_;
  HugePageBuffer<int8_t> weights_;      // [tiles, groups of four inputs, blocks of a tile, 16 outputs, 4 inputs]
  HugePageBuffer<int32_t> weight_sums_; // [outputs], up to whole tiles: what a zero of one adds
  HugePageBuffer<float> scales_, bias_; // [outputs], up to whole tiles
};

}  // namespace ibidem
