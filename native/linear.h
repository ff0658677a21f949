// A linear layer with int8 weights, and rows of activations quantised for it.
#pragma once

#include <cstdint>

#include "buffer.h"
#include "simd.h"

namespace ibidem {

enum class Activation : int { kNone = 0, kRelu = 1, kSwish = 2 };

// Rows of activations as bytes, each row with its own scale, so that no row depends on those beside it.
class QuantisedRows {
 public:
  // x: [rows, width]. A value becomes round(x / largest * 127) + 128, the largest being that of its row.
  void set(const float* x, int64_t rows, int64_t width, int64_t threads);

  int64_t rows() const { return rows_; }
  int64_t stride() const { return stride_; }
  const uint8_t* row(int64_t r) const { return bytes_ + r * stride_; }
  // The largest magnitude of a row; NaN where the row holds something that is not finite.
  float largest(int64_t r) const { return largest_[r]; }
  int32_t zero(int64_t r) const { return zero_[r]; }

 private:
  void set_row(const float* x, int64_t r, int64_t width);

  int64_t rows_ = 0, stride_ = 0;
  uint8_t* bytes_ = nullptr;
  float* largest_ = nullptr;
  int32_t* zero_ = nullptr;
  Scratch<uint8_t> bytes_room_;
  Scratch<float> largest_room_;
  Scratch<int32_t> zero_room_;
};

class Linear {
 public:
  // weights: [outputs, inputs]; scales: [outputs]; bias: [outputs] or none.
  Linear(const int8_t* weights, const float* scales, const float* bias, int64_t inputs, int64_t outputs);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  // out: [rows, outputs]. Sums are exact, in int32. Rows with largest NaN give NaN.
  void apply(const QuantisedRows& x, Activation activation, float* out, int64_t threads) const;

 private:
  void pack(const int8_t* weights, int64_t tile);

  // The products of some rows with some blocks of a tile; of all rows; of the last ones, which are at most Rows.
  template <int Rows, int Blocks>
  void apply_part(const QuantisedRows& x, int64_t first_row, int64_t tile, int first_block, Activation activation,
                  float* out) const;
  template <int Rows, int Blocks>
  void add_up(const uint8_t* bytes, int64_t stride, int64_t first_output, int32_t (&totals)[Rows][Blocks][kLanes]) const;
  template <int Rows, int Blocks>
  void apply_all_rows(const QuantisedRows& x, int64_t tile, int first_block, Activation activation, float* out) const;
  template <int Rows, int Blocks>
  void apply_rows(const QuantisedRows& x, int64_t first_row, int64_t tile, int first_block, Activation activation,
                  float* out) const;

  int64_t inputs_, outputs_, groups_, tiles_;
  Buffer<int8_t> weights_;      // [tiles, groups of four inputs, blocks of a tile, 16 outputs, 4 inputs]
  Buffer<int32_t> zero_;        // [outputs] what the bytes' zero of 128 adds to a sum
  Buffer<float> scales_, bias_; // [outputs], up to whole tiles
};

}  // namespace ibidem
