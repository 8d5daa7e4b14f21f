#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = x * sigmoid(x) (Elfwing, Uchibe, Doya, 2017), also called swish.
struct Silu {
  static constexpr std::string_view name = "silu";
  static constexpr bool elementwise = true;
  static constexpr bool light = true;
  static constexpr std::string_view aten = "aten::silu";

  RIDGE_OPERATOR(Silu);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<PointwiseStep> as_step(Types in) const;
  Epilogue as_epilogue() const { return Epilogue::silu; }
};

// Takes (dy, x) and gives dx = dy * s * (1 + x * (1 - s)) with s = sigmoid(x).
struct SiluGrad {
  static constexpr std::string_view name = "silu_grad";
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::silu_backward";

  RIDGE_OPERATOR(SiluGrad);
  std::optional<PointwiseStep> as_step(Types in) const;
};

Value silu(Value x);

}  // namespace ridge
