#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// c = a + b with NumPy broadcasting; one dtype.
struct Add {
  static constexpr std::string_view name = "add";
  static constexpr DTypes dtypes = f32_and_16_bit;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Add>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const Add&) const = default;
};

// c = a * b with NumPy broadcasting; one dtype.
struct Mul {
  static constexpr std::string_view name = "mul";
  static constexpr DTypes dtypes = f32_and_16_bit;

  std::vector<TensorType> infer(Types in) const;
  Cost cost(Types in, Types out) const;
  std::vector<Value> grad(GradBuilder& builder) const;
  void reference(ReferenceCall& call) const;
  static std::vector<Sample<Mul>> samples();
  KernelPtr cpu(CpuPrepare& prepare) const;
  KernelPtr gpu(GpuPrepare& prepare) const;
  bool operator==(const Mul&) const = default;
};

Value add(Value a, Value b);
Value mul(Value a, Value b);

}  // namespace ridge
