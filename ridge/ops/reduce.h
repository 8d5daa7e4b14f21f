#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// The sum over the dimensions along which `shape` broadcasts to the operand's shape: the gradient
// of a broadcast. Accumulates in f32.
struct SumTo {
  static constexpr std::string_view name = "sum_to";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr std::string_view aten = "aten::sum";

  Shape shape;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<SumTo>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const SumTo&) const = default;
};

// The value itself if it has that shape already.
Value sum_to(Value x, const Shape& shape);

}  // namespace ridge
