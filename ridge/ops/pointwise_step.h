#pragma once

#include <cstdint>

#include "ridge/ops/element_function.h"

namespace ridge {

// A step of a chain of elementwise operators (ops/pointwise.h): what is computed in f32 of
// registers a and, if it takes two operands, b. An operator that is one says so by its as_step().
struct PointwiseStep {
  enum class Code : std::uint8_t {
    add,
    mul,
    scale,
    silu,
    silu_grad,
    relu,
    relu_grad,
    activation,
    activation_grad
  };
  Code code = Code::add;
  std::uint16_t a = 0, b = 0;
  float factor = 1.0f;                         // of scale
  ActivationKind kind = ActivationKind::gelu;  // of activation and activation_grad
  bool operator==(const PointwiseStep&) const = default;
};

using StepCode = PointwiseStep::Code;

}  // namespace ridge
