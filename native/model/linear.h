// A linear layer with int8 weights, and its quantised rows of activations.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "model/activation.h"
#include "simd/simd.h"

namespace ibidem {

// Rows of activations as bytes, each row with its own step and zero, so that no row depends on others.
//
// The value of largest magnitude is stored apart as a whole number of steps: it is often many times as large as all others
// and would make the row's step coarse.
class QuantisedRows {
 public:
  // x: [rows, width]. A value becomes round(x / step) + zero; the largest one of a row becomes `zero`.
  void set(const float* x, int64_t rows, int64_t width, int64_t threads);

  int64_t rows() const { return rows_; }
  int64_t stride() const { return stride_; }
  const RowByte* row(int64_t r) const { return bytes_ + r * stride_; }
  // NaN where the row is not finite.
  float step(int64_t r) const { return infos_[r].step; }
  int32_t zero(int64_t r) const { return infos_[r].zero; }
  // The position of the largest magnitude, and its value in steps.
  int64_t peak(int64_t r) const { return infos_[r].peak; }
  int32_t height(int64_t r) const { return infos_[r].height; }

 private:
  struct RowInfo {
    float step;
    int32_t zero, peak, height;
  };

  void set_row(const float* x, int64_t r, int64_t width);

  int64_t rows_ = 0, stride_ = 0;
  RowByte* bytes_ = nullptr;
  RowInfo* infos_ = nullptr;
  Scratch<RowByte> bytes_buffer_;
  Scratch<RowInfo> infos_buffer_;
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

  // The weights of one input for 16 outputs.
  Ints column(int64_t input, int64_t first_output) const;

  // Some blocks of a tile.
  template <class Weight>
  struct Part {
    int64_t first_output;
    const Weight* weights;
    int64_t step;  // from one quad of inputs to the next
  };
  Part<int8_t> part(int64_t tile, int first_block) const;
  // The same for many rows, widened to the type of the multiplication, in a buffer of this thread.
  template <int Blocks, class Wide = WideWeight>
  Part<Wide> widened(const Part<int8_t>& part) const;

  // Multiplies some rows with a part; all rows; the last ones, at most Rows.
  template <int Rows, int Blocks, class Weight>
  void apply_part(const QuantisedRows& x, int64_t first_row, const Part<Weight>& part, Activation activation, float* out) const;
  template <int Rows, int Blocks, class Weight>
  void apply_all_rows(const QuantisedRows& x, const Part<Weight>& part, Activation activation, float* out) const;
  template <int Rows, int Blocks, class Weight>
  void apply_rows(const QuantisedRows& x, int64_t first_row, const Part<Weight>& part, Activation activation, float* out) const;

  int64_t inputs_, outputs_, quads_, tiles_;
  HugePageBuffer<int8_t> weights_;       // [tiles, quads of inputs, blocks of a tile, 16 outputs, 4 inputs]
  HugePageBuffer<int32_t> weight_sums_;  // [outputs], padded to tiles: the sum of each output's weights
  HugePageBuffer<float> scales_, bias_;  // [outputs], padded to tiles
};

}  // namespace ibidem
