#include "ridge/ops/swiglu.h"

#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

TensorType half_of(std::string_view op, Types in, std::size_t i) {
  check_min_rank(op, in, i, 1);
  const auto dims = in[i].shape.dims();
  if (dims.back() % 2 != 0)
    throw ShapeError("{}: {} columns do not hold gate and up side by side: {}", op, dims.back(),
                     list_of(in));
  std::vector<std::int64_t> half(dims.begin(), dims.end());
  half.back() /= 2;
  return {in[i].dtype, Shape(half)};
}

// Where gate and up of element i of the result lie, in one packed tensor.
struct Packed {
  std::int64_t columns;  // of the result
  std::int64_t gate(std::int64_t i) const { return i / columns * 2 * columns + i % columns; }
  std::int64_t up(std::int64_t i) const { return gate(i) + columns; }
};

}  // namespace

std::vector<TensorType> SwiGlu::infer(Types in) const {
  if (in.size() != 1) check_count(name, in, 2);
  check_dtype(name, in, 0);
  if (in.size() == 1) return {half_of(name, in, 0)};
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost SwiGlu::cost(Types in, Types out) const {
  // Per element: exponential, add and divide for the sigmoid; two products.
  return streaming_cost(5 * out[0].numel(), in, out);
}

std::vector<Value> SwiGlu::grad(GradBuilder& b) const {
  std::vector<Value> operands{b.grad()};
  for (std::size_t i = 0; i < b.input_count(); ++i) operands.push_back(b.input(i));
  return b.graph().apply(SwiGluGrad{}, operands);
}

void SwiGlu::reference(ReferenceCall& call) const {
  const bool packed = call.inputs.size() == 1;
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const Packed at{packed ? y.shape[-1] : 1};
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
    const double gate = packed ? x[at.gate(i)] : x[i];
    const double up = packed ? x[at.up(i)] : call.inputs[1][i];
    y[i] = gate * logistic(gate) * up;
  }
}

std::vector<Sample<SwiGlu>> SwiGlu::samples() {
  std::vector<Sample<SwiGlu>> samples;
  auto separate = [&](const Shape& shape, double range) {
    samples.push_back({{}, {{{DType::f32, shape}, -range, range}, {{DType::f32, shape}}}});
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    separate(shape, 8.0);
  // Far into both tails, where the exponential overflows and vanishes.
  separate({101}, 200.0);
  for (const Shape& shape : {Shape{2}, Shape{3, 14}, Shape{2, 5, 34}, Shape{130, 514}})
    samples.push_back({{}, {{{DType::f32, shape}, -8.0, 8.0}}});
  return samples;
}

std::vector<TensorType> SwiGluGrad::infer(Types in) const {
  const Operands at = operands(in.size());
  check_count(name, in, at.count);
  check_dtype(name, in, at.dy);
  if (at.up != at.gate) {
    check_same_type(name, in, at.dy, at.gate);
    check_same_type(name, in, at.dy, at.up);
  } else {
    check_type(name, in, at.dy, half_of(name, in, at.gate));
  }
  std::vector<TensorType> out(in.begin() + at.gate, in.end());
  if (result) out.push_back(in[at.dy]);
  return out;
}

std::optional<Alias> SwiGluGrad::aliased_input(std::uint32_t output, Types in) const {
  const Operands at = operands(in.size());
  if (output + 1 == in.size())
    return Alias{.input = static_cast<std::uint32_t>(at.dy)};  // beyond the gradients: the result
  return in_place && at.up == at.gate
             ? std::optional(Alias{.input = static_cast<std::uint32_t>(at.gate)})
             : std::nullopt;
}

Cost SwiGluGrad::cost(Types in, Types out) const {
  // Per element: exponential, add and divide for the sigmoid; silu; dup; dy * up, 1 - s, its
  // product with silu, the sum with s, and dgate; y.
  return streaming_cost((result ? 11 : 10) * in[0].numel(), in, out);
}

void SwiGluGrad::reference(ReferenceCall& call) const {
  const Operands operand = operands(call.inputs.size());
  const bool packed = operand.up == operand.gate;
  const auto &dy = call.inputs[operand.dy], &x = call.inputs[operand.gate], &dx = call.outputs[0];
  const Packed at{packed ? dy.shape[-1] : 1};
  for (std::int64_t i = 0; i < dy.shape.numel(); ++i) {
    const double gate = packed ? x[at.gate(i)] : x[i];
    const double up = packed ? x[at.up(i)] : call.inputs[operand.up][i];
    const double s = logistic(gate);
    (packed ? dx[at.gate(i)] : dx[i]) = dy[i] * up * s * (1.0 + gate * (1.0 - s));
    (packed ? dx[at.up(i)] : call.outputs[1][i]) = dy[i] * gate * s;
    if (result) call.outputs.back()[i] = gate * s * up;
  }
}

std::vector<Sample<SwiGluGrad>> SwiGluGrad::samples() {
  std::vector<Sample<SwiGluGrad>> samples;
  auto separate = [&](const Shape& shape, double range) {
    const TensorType type{DType::f32, shape};
    samples.push_back({{}, {{type}, {type, -range, range}, {type}}});
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    separate(shape, 8.0);
  separate({101}, 200.0);
  auto packed = [&](const Shape& y, const Shape& x) {
    samples.push_back({{}, {{{DType::f32, y}}, {{DType::f32, x}, -8.0, 8.0}}});
  };
  packed({1}, {2});
  packed({3, 7}, {3, 14});
  packed({2, 5, 17}, {2, 5, 34});
  packed({130, 257}, {130, 514});
  for (const bool in_place : {false, true})
    for (const bool result : {false, true})
      if (in_place || result)
        samples.push_back({{.in_place = in_place, .result = result},
                           {{{DType::f32, {9, 33}}}, {{DType::f32, {9, 66}}, -8.0, 8.0}}});
  const TensorType type{DType::f32, {5, 331}};
  samples.push_back({{.result = true}, {{type}, {type, -8.0, 8.0}, {type}}});
  return samples;
}

Value swiglu(Value gate, Value up) { return gate.graph->apply1(SwiGlu{}, {gate, up}); }
Value swiglu(Value packed) { return packed.graph->apply1(SwiGlu{}, {packed}); }

static_assert(Operator<SwiGlu> && Differentiable<SwiGlu>);
static_assert(Operator<SwiGluGrad> && Aliasing<SwiGluGrad>);

}  // namespace ridge
