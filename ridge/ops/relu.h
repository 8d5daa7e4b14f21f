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

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Relu>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const Relu&) const = default;
};

// Takes (dy, y) and gives dx = dy where y > 0, else 0.
struct ReluGrad {
  static constexpr std::string_view name = "relu_grad";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::threshold_backward";

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<ReluGrad>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const ReluGrad&) const = default;
};

Value relu(Value x);

}  // namespace ridge
