// Layer normalisation of a residual connection.
#pragma once

#include <cstdint>

namespace ibidem {

struct Norm {
  const float* weight;  // [width]
  const float* bias;    // [width]
  float eps;

  // x = norm(x + added), row by row; both [rows, width].
  void add_and_normalise(float* x, const float* added, int64_t rows, int64_t width, int64_t threads) const;

 private:
  void normalise_row(float* x, const float* added, int64_t width) const;
};

}  // namespace ibidem
