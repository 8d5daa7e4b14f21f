#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = factor * x.
struct Scale {
  static constexpr std::string_view name = "scale";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::mul";

  float factor = 1.0f;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Scale>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const Scale&) const = default;
};

// The same numbers in another floating dtype, rounded to nearest even.
struct Cast {
  static constexpr std::string_view name = "cast";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::_to_copy";

  DType to = DType::f32;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Cast>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const Cast&) const = default;
};

Value scale(Value x, float factor);
// The value itself if it has that dtype already.
Value cast(Value x, DType to);

}  // namespace ridge
