#include "ridge/ops/element_function.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ridge {
namespace {

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_density(double x) {
  return std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}
double hard_sigmoid(double x) { return std::clamp(x + 3.0, 0.0, 6.0) / 6.0; }

// By ActivationKind. PyTorch's gradients of sigmoid, tanh, exp and sqrt take the result in place of
// x.
constexpr ElementFunction activations[] = {
    {.name = "relu6",
     .value = [](double x) { return std::clamp(x, 0.0, 6.0); },
     .derivative = [](double x) { return x > 0 && x < 6 ? 1.0 : 0.0; },
     .flops = 0,
     .gradient_flops = 0,
     .aten = "aten::relu6",
     .aten_gradient = "aten::hardtanh_backward"},
    {.name = "sigmoid",
     .value = logistic,
     .derivative = [](double x) { return logistic(x) * logistic(-x); },
     .flops = 3,           // exponential, add, division
     .gradient_flops = 6,  // the sigmoid s, 1 - s, two products
     .aten = "aten::sigmoid"},
    {.name = "hard_sigmoid",
     .value = hard_sigmoid,
     .derivative = [](double x) { return x > -3 && x < 3 ? 1.0 / 6 : 0.0; },
     .flops = 2,  // add, division
     .gradient_flops = 1,
     .aten = "aten::hardsigmoid",
     .aten_gradient = "aten::hardsigmoid_backward"},
    {.name = "hard_swish",
     .value = [](double x) { return x * hard_sigmoid(x); },
     .derivative = [](double x) { return x <= -3 ? 0.0 : (x >= 3 ? 1.0 : x / 3 + 0.5); },
     .flops = 3,           // and a product
     .gradient_flops = 3,  // x / 3 + 1/2, times dy
     .aten = "aten::hardswish",
     .aten_gradient = "aten::hardswish_backward"},
    {.name = "gelu",
     .value = [](double x) { return x * normal_cdf(x); },
     .derivative = [](double x) { return normal_cdf(x) + x * normal_density(x); },
     .flops = 5,            // the argument, the error function, an add, two products
     .gradient_flops = 11,  // cdf (4), density (square, factor, exponential, factor), x times it,
                            // sum, times dy
     .aten = "aten::gelu",
     .aten_gradient = "aten::gelu_backward"},
    {.name = "tanh",
     .value = [](double x) { return std::tanh(x); },
     .derivative = [](double x) { return 1.0 / (std::cosh(x) * std::cosh(x)); },
     .flops = 1,
     .gradient_flops = 4,  // y, its square, 1 - that, times dy
     .aten = "aten::tanh"},
    {.name = "exp",
     .value = [](double x) { return std::exp(x); },
     .derivative = [](double x) { return std::exp(x); },
     .flops = 1,
     .gradient_flops = 2,
     .aten = "aten::exp"},
    {.name = "sqrt",
     .value = [](double x) { return std::sqrt(x); },
     .derivative = [](double x) { return 0.5 / std::sqrt(x); },
     .flops = 1,
     .gradient_flops = 3,  // the root, a division, times dy
     .aten = "aten::sqrt"},
    {.name = "exp_capped",
     .value = [](double x) { return std::min(std::exp(x), 100.0); },
     .derivative = [](double x) { return std::exp(x) <= 100.0 ? std::exp(x) : 0.0; },
     .flops = 1,
     .gradient_flops = 2},
};
static_assert(std::size(activations) == activation_kinds);

}  // namespace

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

const ElementFunction relu_function{.name = "relu",
                                    .value = [](double x) { return std::max(x, 0.0); },
                                    .derivative = [](double x) { return x > 0 ? 1.0 : 0.0; },
                                    .flops = 0,  // comparisons are not counted
                                    .gradient_flops = 0};

const ElementFunction silu_function{
    .name = "silu",
    .value = [](double x) { return x * logistic(x); },
    .derivative =
        [](double x) {
          const double s = logistic(x);
          return s * (1.0 + x * (1.0 - s));
        },
    .flops = 4,  // exponential, add and division for the sigmoid; a product
    .gradient_flops =
        8};  // the sigmoid s, 1 - s, its product with x, an add, products with s and dy

const ElementFunction& element_function(ActivationKind kind) {
  return activations[static_cast<std::size_t>(kind)];
}

}  // namespace ridge
