// e ** x for 16 numbers.
#pragma once

#include <initializer_list>

#include "simd/simd.h"

namespace ibidem {

// Relative error about 2e-7 for x from -87 to 88, to which x is clamped. NaN stays NaN. The polynomial is that of Cephes:
// x = n log 2 + r, and e ** r by a series with fitted coefficients.
inline Floats exponential(Floats x) {
  x = min(splat(88.0f), max(splat(-87.0f), x));
  const Floats n = nearest(x * splat(1.44269504f));
  Floats r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  Floats series = splat(1.9875691500e-4f);
  for (const float coefficient : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    series = fma(series, r, splat(coefficient));
  return scale_by_power(fma(r * r, series, r + splat(1.0f)), n);
}

}  // namespace ibidem
