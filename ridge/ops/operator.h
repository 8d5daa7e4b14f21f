#pragma once

// What every operator is made of. An operator is a plain struct of attributes with the members that
// the concept below names; ops/op.h lists them all. docs/internals/adding-an-operator.md walks
// through one.

#include <concepts>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/base/shape.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/epilogue.h"
#include "ridge/ops/image.h"
#include "ridge/ops/pointwise_step.h"

namespace ridge {

struct CpuPrepare;  // cpu/prepare.h
struct GpuPrepare;  // gpu/device/prepare.h
class GradBuilder;  // ops/grad_builder.h
class Kernel;       // device/kernel.h
using KernelPtr = std::unique_ptr<Kernel>;

// An operand of a sample, and the values a test fills it with: reals uniform in [low, high), or
// integers from low up to but without high.
struct SampleInput {
  TensorType type;
  double low = -1.0;
  double high = 1.0;
};

// An operator with operands that every test and benchmark of it runs. Floating operands are given
// as f32; tests substitute each dtype of dtypes_of().
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

// Dtypes that floating operands of an operator may have.
using DTypes = std::span<const DType>;
inline constexpr DType f32_only[] = {DType::f32};
inline constexpr DType only_16_bit[] = {DType::bf16, DType::f16};
inline constexpr DType f32_and_16_bit[] = {DType::f32, DType::bf16, DType::f16};
// Dtypes of operators that only move data: integers that stand for reals (ops/int8.h) pass too.
inline constexpr DType f32_16_bit_and_s8[] = {DType::f32, DType::bf16, DType::f16, DType::s8};

// What all operators have besides their `name`:
//   infer      types of the outputs; ShapeError for operands that it does not take
//   cost       FLOPs, and bytes read and written
//   reference  the outputs in double precision, which every kernel is tested against
//   samples    operands that every test and benchmark of it runs
//   cpu, gpu   a kernel for these operands on such a device
// One with a gradient also declares
//   std::vector<Value> grad(GradBuilder& builder) const;
#define RIDGE_OPERATOR(T)                        \
  std::vector<TensorType> infer(Types in) const; \
  Cost cost(Types in, Types out) const;          \
  void reference(ReferenceCall& call) const;     \
  static std::vector<Sample<T>> samples();       \
  KernelPtr cpu(CpuPrepare& prepare) const;      \
  KernelPtr gpu(GpuPrepare& prepare) const;      \
  bool operator==(const T&) const = default

template <class T>
concept Operator = std::equality_comparable<T> &&
    requires(const T op, Types types, ReferenceCall& reference, CpuPrepare& cpu, GpuPrepare& gpu) {
  { T::name } -> std::convertible_to<std::string_view>;
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

// Optional traits, each a member of the operators that have it. Whoever asks of any operator asks
// graph/op_rules.h, ops/epilogue.h or ops/pointwise.h.

// The floating dtypes that its floating operands may have: f32 and those of 16 bits unless it says
// `static constexpr DTypes dtypes`.
template <class T>
constexpr DTypes dtypes_of() {
  if constexpr (requires { T::dtypes; })
    return T::dtypes;
  else
    return f32_and_16_bit;
}

// The kind of its FLOPs: WorkKind::elements unless it says `static constexpr WorkKind work`.
template <class T>
constexpr WorkKind work_of() {
  if constexpr (requires { T::work; })
    return T::work;
  else
    return WorkKind::elements;
}

// What its kernels take of a device: `static constexpr Footprint footprint`.
template <class T>
concept HasFootprint = requires {
  { T::footprint } -> std::convertible_to<Footprint>;
};

// See is_elementwise(): `static constexpr bool elementwise = true`.
template <class T>
concept Elementwise = T::elementwise;

// It may be a step of a chain in one pass; of some operands alone, if it depends on them.
template <class T>
concept Chainable = requires(const T op, Types types) {
  { op.as_step(types) } -> std::same_as<std::optional<PointwiseStep>>;
};

// A convolution or a linear layer may compute it before it writes its sums; of some attributes
// alone, if Epilogue::none says so of the others.
template <class T>
concept Absorbable = requires(const T op) {
  { op.as_epilogue() } -> std::same_as<Epilogue>;
};

// See is_light(): `static constexpr bool light = true`.
template <class T>
concept Light = T::light;

// See is_conversion(): `bool is_conversion() const`.
template <class T>
concept Converting = requires(const T op) {
  { op.is_conversion() } -> std::same_as<bool>;
};

// A row of its first result, along the last dimension, needs that row of operand 0 alone, and of
// the other operands what all rows need: `bool by_rows(Types in) const`. See row_operands().
template <class T>
concept ByRows = requires(const T op, Types types) {
  { op.by_rows(types) } -> std::same_as<bool>;
};

// It works along one dimension, whatever the order of the others: a member `dim`.
template <class T>
concept AlongDimension = requires(T op) {
  { op.dim } -> std::same_as<std::uint32_t&>;
};

// It can write its result over an operand that nobody needs any more: a member `in_place`, with
// which aliased_input() says over which.
template <class T>
concept OverOperand = Aliasing<T> && requires(T op) {
  { op.in_place } -> std::same_as<bool&>;
};

// Its cost counts other bytes than those of each operand once and each result once, because it
// reads or writes a part of them: `static constexpr bool partial = true`.
template <class T>
concept Partial = T::partial;

// See sent_bytes(): `std::int64_t sent_bytes(Types in) const`.
template <class T>
concept Sending = requires(const T op, Types types) {
  { op.sent_bytes(types) } -> std::same_as<std::int64_t>;
};

// It works on images: a member `layout`.
template <class T>
concept OnImages = requires(T op) {
  { op.layout } -> std::same_as<ImageLayout&>;
};

// Some operands hold ids: see id_range().
template <class T>
concept TakesIds = requires(const T op, Types types) {
  { op.id_range(types) } -> std::same_as<std::int64_t>;
};

// PyTorch has it: `static constexpr std::string_view aten`, or where attributes or operands decide,
// `std::string_view aten_name(Types in) const`, which may be empty.
template <class T>
concept InPyTorch = requires {
  { T::aten } -> std::convertible_to<std::string_view>;
};
template <class T>
concept PartlyInPyTorch = requires(const T op, Types types) {
  { op.aten_name(types) } -> std::same_as<std::string_view>;
};

// Some of its kind have no gradient: those whose has_gradient() is false.
template <class T>
concept PartlyDifferentiable = requires(const T op) {
  { op.has_gradient() } -> std::same_as<bool>;
};

// How many outputs have gradients, the first ones: the others serve the gradient of these.
// 1 unless it says `static constexpr std::size_t differentiable_outputs`.
template <class T>
constexpr std::size_t differentiable_outputs() {
  if constexpr (requires { T::differentiable_outputs; })
    return T::differentiable_outputs;
  else
    return 1;
}

// Whether an operand is state that the operator updates in place, and so has no gradient. None is
// unless it says `static constexpr bool is_state(std::size_t operand)`.
template <class T>
constexpr bool is_state(std::size_t operand) {
  if constexpr (requires { T::is_state(operand); })
    return T::is_state(operand);
  else
    return false;
}

// How often kernels may round to the dtype of operands what goes into one number of a result: once,
// where it is stored, unless it says `int roundings() const`.
template <class T>
constexpr int roundings(const T& op) {
  if constexpr (requires { op.roundings(); })
    return op.roundings();
  else
    return 1;
}

// Its GPU kernels rely on operands that begin at a multiple of 16 bytes, as whole tensors do and
// slices may not: `static constexpr bool whole_operands = true`.
template <class T>
concept TakesWholeOperands = T::whole_operands;

// Its operands have names: operands() gives the index of each, and how many there are. Where the
// number of operands decides which they are, it is operands(number).
template <class T>
concept NamesOperands = requires {
  typename T::Operands;
};

}  // namespace ridge
