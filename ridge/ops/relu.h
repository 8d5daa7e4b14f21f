#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = max(x, 0).
struct Relu {
  static constexpr std::string_view name = "relu";
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::relu";

  RIDGE_OPERATOR(Relu);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<PointwiseStep> as_step(Types in) const;
  Epilogue as_epilogue() const { return Epilogue::relu; }
};

// Takes (dy, y) and gives dx = dy where y > 0, else 0.
struct ReluGrad {
  static constexpr std::string_view name = "relu_grad";
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::threshold_backward";

  RIDGE_OPERATOR(ReluGrad);
  std::optional<PointwiseStep> as_step(Types in) const;
};

Value relu(Value x);

}  // namespace ridge
