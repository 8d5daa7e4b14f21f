#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

// A function of one element that networks put between their layers, and what there is to say of it
// beside its kernels: the operators that compute it, chains and epilogues all say it from here.
struct ElementFunction {
  std::string_view name;  // "gelu"
  double (*value)(double x);
  double (*derivative)(double x);  // at a kink the one that PyTorch takes
  // FLOPs of one element: of the value, and of dy times the derivative.
  std::int64_t flops, gradient_flops;
  // PyTorch's operators for (x) and for (dy, x); empty if it has none.
  std::string_view aten = {}, aten_gradient = {};
};

double logistic(double x);  // 1 / (1 + exp(-x))

extern const ElementFunction relu_function;  // max(x, 0)
extern const ElementFunction silu_function;  // x * logistic(x)

// The functions of the operator Activation (ops/activation.h).
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
inline constexpr std::size_t activation_kinds = 9;

const ElementFunction& element_function(ActivationKind kind);

}  // namespace ridge
