#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// A tensor of one value, from no operand.
struct Fill {
  static constexpr std::string_view name = "fill";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr std::string_view aten = "aten::full";

  TensorType type;
  float value = 0.0f;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Fill>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const Fill&) const = default;
};

Value fill(Graph& graph, const TensorType& type, float value);

}  // namespace ridge
