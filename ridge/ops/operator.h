#pragma once

// What every operator is made of. An operator is a plain struct of attributes with the members that
// the concept below names; ops/op.h lists them all. docs/adding-an-operator.md walks through one.

#include <concepts>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/base/shape.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/op_rules.h"

namespace ridge {

struct CpuPrepare;  // cpu/prepare.h
struct GpuPrepare;  // gpu/prepare.h
class GradBuilder;  // ops/grad_builder.h
class Kernel;       // ops/kernel.h
using KernelPtr = std::unique_ptr<Kernel>;

// An operand of a sample, and the values a test fills it with: reals uniform in [low, high), or
// integers from low up to but without high.
struct SampleInput {
  TensorType type;
  double low = -1.0;
  double high = 1.0;
};

// An operator with operands that every test and benchmark of it runs. Floating operands are given
// as f32; tests substitute each dtype of the operator's `dtypes`.
template <class T>
struct Sample {
  T op;
  std::vector<SampleInput> inputs;
};

// A tensor of the double-precision oracle. Integers are held as doubles, exactly.
struct ReferenceTensor {
  Shape shape;
  std::span<double> data;

  double& operator[](std::int64_t i) const { return data[static_cast<std::size_t>(i)]; }
};

struct ReferenceCall {
  std::span<const ReferenceTensor> inputs;
  std::span<const ReferenceTensor> outputs;
};

// The floating dtypes that an operator's floating operands may have.
using DTypes = std::span<const DType>;
inline constexpr DType f32_only[] = {DType::f32};
inline constexpr DType only_16_bit[] = {DType::bf16, DType::f16};
inline constexpr DType f32_and_16_bit[] = {DType::f32, DType::bf16, DType::f16};
// Of operators that compute nothing: integers that stand for reals (ops/int8.h) pass through them.
inline constexpr DType f32_16_bit_and_s8[] = {DType::f32, DType::bf16, DType::f16, DType::s8};

template <class T>
concept Operator = std::equality_comparable<T> &&
    requires(const T op, Types types, ReferenceCall& reference, CpuPrepare& cpu, GpuPrepare& gpu) {
  { T::name } -> std::convertible_to<std::string_view>;
  { T::dtypes } -> std::convertible_to<DTypes>;
  { op.infer(types) } -> std::same_as<std::vector<TensorType>>;
  { op.cost(types, types) } -> std::same_as<Cost>;
  { op.reference(reference) } -> std::same_as<void>;
  { T::samples() } -> std::same_as<std::vector<Sample<T>>>;
  { op.cpu(cpu) } -> std::same_as<KernelPtr>;
  { op.gpu(gpu) } -> std::same_as<KernelPtr>;
};

// An operator that autodiff can go through.
template <class T>
concept Differentiable = requires(const T op, GradBuilder& builder) {
  { op.grad(builder) } -> std::same_as<std::vector<Value>>;
};

// An operator some of whose outputs share an input's memory.
template <class T>
concept Aliasing = requires(const T op, std::uint32_t output, Types types) {
  { op.aliased_input(output, types) } -> std::same_as<std::optional<Alias>>;
};

}  // namespace ridge
