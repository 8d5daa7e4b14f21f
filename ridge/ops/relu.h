#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = max(x, 0).
struct Relu {
  static constexpr std::string_view name = "relu";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::relu";

  RIDGE_OPERATOR(Relu);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// Takes (dy, y) and gives dx = dy where y > 0, else 0.
struct ReluGrad {
  static constexpr std::string_view name = "relu_grad";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::threshold_backward";

  RIDGE_OPERATOR(ReluGrad);
};

Value relu(Value x);

}  // namespace ridge
