#pragma once

// The activations as functions of one float, without branches, so that loops of them vectorize.

#include <bit>
#include <cmath>
#include <cstdint>

#include "ridge/base/normal_tail.h"
#include "ridge/cpu/simd.h"
#include "ridge/ops/activation.h"
#include "ridge/ops/epilogue.h"

namespace ridge {

// Written so that NaN stays NaN.
inline float relu6(float x) { return x < 0.0f ? 0.0f : (x > 6.0f ? 6.0f : x); }
inline float hard_sigmoid(float x) { return relu6(x + 3.0f) * (1.0f / 6.0f); }
inline float hard_swish(float x) { return x * hard_sigmoid(x); }
inline float exp_capped(float x) {
  const float y = vexp(x);
  return y > 100.0f ? 100.0f : y;
}
inline float silu(float x) { return x * sigmoid(x); }

// a b + c, rounded once where the processor does so in one instruction. The compiler would fuse
// them in one kernel and not in another; this is for kernels that must give the same bits.
inline float multiply_add(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline float silu_grad(float dy, float x) {
  const float s = sigmoid(x);
  return dy * s * multiply_add(x, 1.0f - s, 1.0f);
}

// The normal distribution: of its tail beyond |x|, and the density at x.
struct Normal {
  float tail, density;

  explicit Normal(float x) {
    const float t = 1.0f / (1.0f + normal_tail_scale * std::fabs(x));
    const float exponential = vexp(-0.5f * x * x);
    tail = 0.5f * normal_tail(t) * exponential;
    density = normal_density_scale * exponential;
  }
  float below(float x) const { return x < 0.0f ? tail : 1.0f - tail; }
};

inline float gelu(float x) { return x * Normal(x).below(x); }
inline float gelu_derivative(float x) {
  const Normal normal(x);
  return normal.below(x) + x * normal.density;
}

// To within 3 units in the last place.
inline float tanh_of(float x) {
  const float a = std::fabs(x), a2 = a * a;
  float p = -0x1.7bf428p-8f;  // fitted to (tanh(x) - x) / x^3 below 5/8
  p = p * a2 + 0x1.53798cp-6f;
  p = p * a2 - 0x1.b86ea4p-5f;
  p = p * a2 + 0x1.110898p-3f;
  p = p * a2 - 0x1.55553ap-2f;
  const float near = a + a * a2 * p, far = 1.0f - 2.0f / (vexp(2.0f * a) + 1.0f);
  return std::copysign(a < 0.625f ? near : far, x);
}

// Calls f(function) with the epilogue as a function of one float.
template <class F>
auto with_epilogue(Epilogue epilogue, const F& f) {
  switch (epilogue) {
    case Epilogue::relu:
      return f([](float x) { return x < 0.0f ? 0.0f : x; });  // so that NaN stays NaN
    case Epilogue::relu6:
      return f([](float x) { return relu6(x); });
    case Epilogue::silu:
      return f([](float x) { return silu(x); });
    case Epilogue::hard_swish:
      return f([](float x) { return hard_swish(x); });
    case Epilogue::gelu:
      return f([](float x) { return gelu(x); });
    case Epilogue::none:
      break;
  }
  return f([](float x) { return x; });
}

// Calls f(function) with the activation as a function of one float.
template <class F>
auto with_activation(ActivationKind kind, const F& f) {
  switch (kind) {
    case ActivationKind::relu6:
      return f([](float x) { return relu6(x); });
    case ActivationKind::sigmoid:
      return f([](float x) { return sigmoid(x); });
    case ActivationKind::hard_sigmoid:
      return f([](float x) { return hard_sigmoid(x); });
    case ActivationKind::hard_swish:
      return f([](float x) { return hard_swish(x); });
    case ActivationKind::gelu:
      return f([](float x) { return gelu(x); });
    case ActivationKind::exp:
      return f([](float x) { return vexp(x); });
    case ActivationKind::sqrt:
      return f([](float x) { return std::sqrt(x); });
    case ActivationKind::exp_capped:
      return f([](float x) { return exp_capped(x); });
    default:
      return f([](float x) { return tanh_of(x); });
  }
}

// The same with its derivative.
template <class F>
auto with_activation_derivative(ActivationKind kind, const F& f) {
  switch (kind) {
    case ActivationKind::relu6:
      return f([](float x) { return x > 0.0f && x < 6.0f ? 1.0f : 0.0f; });
    case ActivationKind::sigmoid:
      return f([](float x) {
        const float s = sigmoid(x);
        return s * (1.0f - s);
      });
    case ActivationKind::hard_sigmoid:
      return f([](float x) { return x > -3.0f && x < 3.0f ? 1.0f / 6.0f : 0.0f; });
    case ActivationKind::hard_swish:
      return f([](float x) {
        const float inside = x * (1.0f / 3.0f) + 0.5f;
        return x <= -3.0f ? 0.0f : (x >= 3.0f ? 1.0f : inside);
      });
    case ActivationKind::gelu:
      return f([](float x) { return gelu_derivative(x); });
    case ActivationKind::exp:
      return f([](float x) { return vexp(x); });
    case ActivationKind::sqrt:
      return f([](float x) { return 0.5f / std::sqrt(x); });
    case ActivationKind::exp_capped:
      return f([](float x) {
        const float y = vexp(x);
        return y <= 100.0f ? y : 0.0f;
      });
    default:
      return f([](float x) {
        const float y = tanh_of(x);
        return 1.0f - y * y;
      });
  }
}

// with_epilogue() with the derivative.
template <class F>
auto with_epilogue_derivative(Epilogue epilogue, const F& f) {
  switch (epilogue) {
    case Epilogue::relu:
      return f([](float x) { return x > 0.0f ? 1.0f : 0.0f; });
    case Epilogue::relu6:
      return with_activation_derivative(ActivationKind::relu6, f);
    case Epilogue::silu:
      return f([](float x) { return silu_grad(1.0f, x); });
    case Epilogue::hard_swish:
      return with_activation_derivative(ActivationKind::hard_swish, f);
    case Epilogue::gelu:
      return with_activation_derivative(ActivationKind::gelu, f);
    default:
      return f([](float) { return 1.0f; });
  }
}

}  // namespace ridge
