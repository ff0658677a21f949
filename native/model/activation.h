// Activation functions.
#pragma once

#include "simd/exponential.h"
#include "simd/simd.h"

namespace ibidem {

// As in ibidem/native/engine.py.
enum class Activation : int { kNone = 0, kRelu = 1, kSwish = 2, kSigmoid = 3, kTanh = 4 };

inline Floats tanh(Floats x) { return splat(1.0f) - splat(2.0f) / (exponential(x + x) + splat(1.0f)); }

inline Floats activate(Floats x, Activation activation) {
  const Floats one = splat(1.0f);
  switch (activation) {
    case Activation::kRelu:
      return max(splat(0.0f), x);
    case Activation::kSwish:
      return x / (one + exponential(splat(0.0f) - x));
    case Activation::kSigmoid:
      return one / (one + exponential(splat(0.0f) - x));
    case Activation::kTanh:
      return tanh(x);
    default:
      return x;
  }
}

}  // namespace ibidem
