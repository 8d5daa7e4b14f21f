#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y[r, c] = (x[r, c] - mean[r]) * rstd[r] * weight[c] + bias[c] (Ba, Kiros, Hinton, 2016), over the
// last dimension: rstd = 1 / sqrt(variance + eps), with the biased variance. Takes x[.., C],
// weight[C] and bias[C] in f32; gives y of x's type, and mean[..] and rstd[..] in f32, for the
// gradient.
struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";
  static constexpr WorkKind work = WorkKind::norm;
  static constexpr std::string_view aten = "aten::native_layer_norm";

  float eps = 1e-5f;

  RIDGE_OPERATOR(LayerNorm);
  std::vector<Value> grad(GradBuilder& builder) const;
  bool by_rows(Types) const { return true; }
};

// Takes (dy, x, weight, mean, rstd) and gives dx of x's type, dweight[C] and dbias[C] in f32. With
// xhat = (x - mean) * rstd and g = weight * dy:
//   dx = rstd * (g - mean_c(g) - xhat * mean_c(g * xhat))
//   dweight = sum dy * xhat;  dbias = sum dy
struct LayerNormGrad {
  static constexpr std::string_view name = "layer_norm_grad";
  static constexpr WorkKind work = WorkKind::norm;

  // Which operand is which.
  struct Operands {
    std::size_t dy = 0, x = 1, weight = 2, mean = 3, rstd = 4, count = 5;
  };
  static constexpr Operands operands() { return {}; }

  RIDGE_OPERATOR(LayerNormGrad);
};

Value layer_norm(Value x, Value weight, Value bias, float eps = 1e-5f);

}  // namespace ridge
