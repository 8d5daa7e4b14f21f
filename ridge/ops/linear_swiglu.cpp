#include "ridge/ops/linear_swiglu.h"

#include <array>

#include "ridge/ops/check.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/swiglu.h"

namespace ridge {
namespace {

constexpr MatMul up_product{.trans_b = true}, down_product{};

// The range of factors in samples: gates are then about 1, where rounding them matters little.
constexpr double range = 0.25;

// Both parts' work, with each operand and result of the whole moved once.
Cost joined(const Cost& product, const Cost& gate, Types in, Types out) {
  Cost cost = streaming_cost(product.flops + gate.flops, in, out);
  cost.macs = product.macs;
  return cost;
}

// A matrix that the parts hand on.
struct Between {
  std::vector<double> data;
  ReferenceTensor tensor;
  explicit Between(const Shape& shape)
      : data(static_cast<std::size_t>(shape.numel())), tensor{shape, data} {}
};

}  // namespace

std::vector<TensorType> LinearSwiGlu::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0);
  const TensorType packed = up_product.infer(in)[0];
  return {packed, SwiGlu{}.infer({&packed, 1})[0]};
}

Cost LinearSwiGlu::cost(Types in, Types out) const {
  return joined(up_product.cost(in, out.first(1)), SwiGlu{}.cost(out.first(1), out.last(1)), in,
                out);
}

void LinearSwiGlu::reference(ReferenceCall& call) const {
  ReferenceCall product{call.inputs, call.outputs.first(1)};
  up_product.reference(product);
  ReferenceCall gate{call.outputs.first(1), call.outputs.last(1)};
  SwiGlu{}.reference(gate);
}

std::vector<Sample<LinearSwiGlu>> LinearSwiGlu::samples() {
  std::vector<Sample<LinearSwiGlu>> samples;
  for (const auto& [m, i, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {3, 7, 5},
                                {33, 130, 17},
                                {200, 128, 72},
                                {72, 384, 200}})
    samples.push_back(
        {{}, {{{DType::f32, {m, k}}, -range, range}, {{DType::f32, {2 * i, k}}, -range, range}}});
  return samples;
}

std::vector<TensorType> LinearSwiGluGrad::infer(Types in) const {
  check_count(name, in, operands().count);
  check_dtype(name, in, operands().g);
  const TensorType dy = down_product.infer(in.first(operands().packed))[0];
  return SwiGluGrad{.result = result}.infer(std::array{dy, in[operands().packed]});
}

std::optional<Alias> LinearSwiGluGrad::aliased_input(std::uint32_t output, Types) const {
  return in_place && output == 0 ? std::optional(Alias{operands().packed}) : std::nullopt;
}

Cost LinearSwiGluGrad::cost(Types in, Types out) const {
  const TensorType dy = down_product.infer(in.first(operands().packed))[0];
  return joined(down_product.cost(in.first(operands().packed), {&dy, 1}),
                SwiGluGrad{.result = result}.cost(std::array{dy, in[operands().packed]}, out), in,
                out);
}

void LinearSwiGluGrad::reference(ReferenceCall& call) const {
  constexpr Operands at = operands();
  const Between dy({call.inputs[at.g].shape[0], call.inputs[at.weight].shape[1]});
  ReferenceCall product{call.inputs.first(at.packed), {&dy.tensor, 1}};
  down_product.reference(product);
  const std::array of_gate{dy.tensor, call.inputs[at.packed]};
  ReferenceCall gate{of_gate, call.outputs};
  SwiGluGrad{.result = result}.reference(gate);
}

std::vector<Sample<LinearSwiGluGrad>> LinearSwiGluGrad::samples() {
  std::vector<Sample<LinearSwiGluGrad>> samples;
  auto add = [&](std::int64_t m, std::int64_t i, std::int64_t k, LinearSwiGluGrad op) {
    samples.push_back({op,
                       {{{DType::f32, {m, k}}, -range, range},
                        {{DType::f32, {k, i}}, -range, range},
                        {{DType::f32, {m, 2 * i}}, -4.0, 4.0}}});
  };
  for (const bool in_place : {false, true})
    for (const bool result : {false, true}) {
      add(3, 7, 5, {in_place, result});
      add(136, 128, 72, {in_place, result});
    }
  add(1, 1, 1, {});
  add(33, 130, 17, {});
  add(72, 384, 200, {});
  return samples;
}

static_assert(Operator<LinearSwiGlu>);
static_assert(Operator<LinearSwiGluGrad> && Aliasing<LinearSwiGluGrad>);

}  // namespace ridge
