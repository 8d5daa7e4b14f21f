#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = x * sigmoid(x) (Elfwing, Uchibe, Doya, 2017), also called swish.
struct Silu {
  static constexpr std::string_view name = "silu";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::silu";

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Silu>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const Silu&) const = default;
};

// Takes (dy, x) and gives dx = dy * s * (1 + x * (1 - s)) with s = sigmoid(x).
struct SiluGrad {
  static constexpr std::string_view name = "silu_grad";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::silu_backward";

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<SiluGrad>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const SiluGrad&) const = default;
};

Value silu(Value x);

}  // namespace ridge
