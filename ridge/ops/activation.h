#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// Functions of one element that networks put between their layers, beside Relu and Silu.
enum class ActivationKind : std::uint8_t {
  relu6,         // min(max(x, 0), 6)
  sigmoid,       // 1 / (1 + exp(-x))
  hard_sigmoid,  // min(max(x + 3, 0), 6) / 6  (Howard et al., 2019)
  hard_swish,    // x * hard_sigmoid(x)
  gelu,          // x / 2 * (1 + erf(x / sqrt(2)))  (Hendrycks and Gimpel, 2016)
  tanh,
  exp,
  sqrt,
  exp_capped,  // min(exp(x), 100)  (the scale of Swin v2's scores: Liu et al., 2021)
};
std::string_view name_of(ActivationKind kind);  // "relu6"

// kind(x) and kind'(x), in double precision.
double value_of(ActivationKind kind, double x);
double derivative_of(ActivationKind kind, double x);

// y = kind(x).
struct Activation {
  static constexpr std::string_view name = "activation";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;

  ActivationKind kind = ActivationKind::gelu;

  RIDGE_OPERATOR(Activation);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::string_view aten_name(Types in) const;
};

// Takes (dy, x) and gives dx = dy * kind'(x); at a kink the derivative that PyTorch takes: 0 at the
// ends of relu6, hard_sigmoid and hard_swish.
struct ActivationGrad {
  static constexpr std::string_view name = "activation_grad";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;

  ActivationKind kind = ActivationKind::gelu;

  RIDGE_OPERATOR(ActivationGrad);
  std::string_view aten_name(Types in) const;
};

Value activation(Value x, ActivationKind kind);

}  // namespace ridge
