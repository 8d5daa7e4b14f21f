#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = f(x), with the function of that kind (ops/element_function.h).
struct Activation {
  static constexpr std::string_view name = "activation";
  static constexpr bool elementwise = true;

  ActivationKind kind = ActivationKind::gelu;

  RIDGE_OPERATOR(Activation);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::string_view aten_name(Types) const { return element_function(kind).aten; }
  std::optional<PointwiseStep> as_step(Types in) const;
  Epilogue as_epilogue() const;
};

// Takes (dy, x) and gives dx = dy * f'(x).
struct ActivationGrad {
  static constexpr std::string_view name = "activation_grad";
  static constexpr bool elementwise = true;

  ActivationKind kind = ActivationKind::gelu;

  RIDGE_OPERATOR(ActivationGrad);
  std::string_view aten_name(Types) const { return element_function(kind).aten_gradient; }
  std::optional<PointwiseStep> as_step(Types in) const;
};

Value activation(Value x, ActivationKind kind);

}  // namespace ridge
