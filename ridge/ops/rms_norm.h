#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// Root mean square normalisation over the last dimension (Zhang and Sennrich, 2019):
//   y[r, c] = x[r, c] * rstd[r] * weight[c],  rstd[r] = 1 / sqrt(mean_c(x[r, c]^2) + eps)
// Takes x[.., C] and weight[C] in f32; gives y of x's type and rstd[..] in f32, for the gradient.
struct RmsNorm {
  static constexpr std::string_view name = "rms_norm";
  static constexpr DTypes dtypes = f32_and_bf16;

  float eps = 1e-6f;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<RmsNorm>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  bool operator==(const RmsNorm&) const = default;
};

// Takes (dy, x, weight, rstd) and gives dx of x's type and dweight[C] in f32:
//   dx[r, c] = rstd * (w[c] dy[r, c] - xhat[r, c] * mean_c(w dy xhat)),  xhat = x * rstd
//   dweight[c] = sum_r dy[r, c] * xhat[r, c]
struct RmsNormGrad {
  static constexpr std::string_view name = "rms_norm_grad";
  static constexpr DTypes dtypes = f32_and_bf16;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<RmsNormGrad>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  bool operator==(const RmsNormGrad&) const = default;
};

Value rms_norm(Value x, Value weight, float eps = 1e-6f);

}  // namespace ridge
