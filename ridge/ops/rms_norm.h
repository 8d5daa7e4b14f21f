#pragma once

#include <optional>

#include "ridge/ops/operator.h"

namespace ridge {

// Where a gradient takes xhat = x * rstd from y / weight, a weight that is nearer to zero than this
// counts as this far from it, with its sign, in the norm and in the gradient alike. A weight of
// zero would else leave no trace of xhat in y, which dx and dweight of its column need; and no
// product can tell the difference.
inline constexpr float least_norm_weight = 0x1p-100f;

// Root mean square normalization over the last dimension (Zhang and Sennrich, 2019):
//   y[r, c] = x[r, c] * rstd[r] * weight[c],  rstd[r] = 1 / sqrt(mean_c(x[r, c]^2) + eps)
// Takes x[.., C] and weight[C] in f32; gives y of x's type, or rounded to `out` if that is given,
// and rstd[..] in f32, for the gradient. If `invertible`, weights keep away from zero
// (least_norm_weight), so that y says what xhat was.
struct RmsNorm {
  static constexpr std::string_view name = "rms_norm";
  static constexpr WorkKind work = WorkKind::norm;
  static constexpr std::string_view aten = "aten::_fused_rms_norm";

  float eps = 1e-6f;
  std::optional<DType> out;
  bool invertible = false;

  RIDGE_OPERATOR(RmsNorm);
  std::vector<Value> grad(GradBuilder& builder) const;
  bool by_rows(Types) const { return true; }
};

// Takes (dy, x, weight, rstd), with dy in any floating dtype, and gives dx of x's type and
// dweight[C] in f32:
//   dx[r, c] = rstd * (w[c] dy[r, c] - xhat[r, c] * mean_c(w dy xhat)),  xhat = x * rstd
//   dweight[c] = sum_r dy[r, c] * xhat[r, c]
// With `from_result` y of an invertible norm, in any floating dtype, stands where x does, which was
// f32 and need not be kept: xhat = y / weight, and dx is f32.
struct RmsNormGrad {
  static constexpr std::string_view name = "rms_norm_grad";
  static constexpr WorkKind work = WorkKind::norm;
  static constexpr std::string_view aten = "aten::_fused_rms_norm_backward";

  bool from_result = false;

  // Which operand is which.
  struct Operands {
    std::size_t dy = 0, x = 1, weight = 2, rstd = 3, count = 4;
  };
  static constexpr Operands operands() { return {}; }

  RIDGE_OPERATOR(RmsNormGrad);
};

// A residual sum and the norm of it: sum = x + delta, and y and rstd as RmsNorm gives them for sum.
// Takes x[.., C] in f32, delta of the same shape and weight[C] in f32; gives sum in f32, y in `out`
// and rstd in f32. Sum and y have gradients. `invertible` as RmsNorm has it.
struct AddRmsNorm {
  static constexpr std::string_view name = "add_rms_norm";
  static constexpr WorkKind work = WorkKind::norm;
  static constexpr std::size_t differentiable_outputs = 2;

  float eps = 1e-6f;
  DType out = DType::f32;
  bool invertible = false;

  RIDGE_OPERATOR(AddRmsNorm);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// Takes (dsum, dy, sum, weight, rstd) with dsum in f32: the gradient that reaches sum from its
// other uses. Or, where there is none, all but dsum. Gives dx in f32 and dweight[C] as RmsNormGrad
// does, with dsum added to dx: the whole gradient of the sum, and so of x and of delta alike. With
// `round_delta` a third output is the same rounded to that dtype, which is the delta's. With
// `from_result` y stands where sum does, as in RmsNormGrad.
struct AddRmsNormGrad {
  static constexpr std::string_view name = "add_rms_norm_grad";
  static constexpr WorkKind work = WorkKind::norm;

  std::optional<DType> round_delta{};
  bool from_result = false;

  // Which operand is which; a dsum that is not there is past the end.
  struct Operands {
    std::size_t dsum = 0, dy = 1, sum = 2, weight = 3, rstd = 4, count = 5;
  };
  static constexpr Operands operands(std::size_t number) {
    return number == 4 ? Operands{4, 0, 1, 2, 3, 4} : Operands{};
  }

  RIDGE_OPERATOR(AddRmsNormGrad);
};

Value rms_norm(Value x, Value weight, float eps = 1e-6f);

}  // namespace ridge
