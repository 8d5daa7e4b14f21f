#include "ridge/ops/silu.h"

#include "ridge/ops/elementwise.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Silu::infer(Types in) const { return infer_same(name, in, 1); }

Cost Silu::cost(Types in, Types out) const {
  return streaming_cost(silu_function.flops * in[0].numel(), in, out);
}

std::vector<Value> Silu::grad(GradBuilder& b) const {
  return {b.graph().apply1(SiluGrad{}, {b.grad(), b.input(0)})};
}

std::optional<PointwiseStep> Silu::as_step(Types) const { return {{.code = StepCode::silu}}; }

void Silu::reference(ReferenceCall& call) const { apply_value(silu_function, call); }

std::vector<Sample<Silu>> Silu::samples() {
  std::vector<Sample<Silu>> samples;
  for (const Shape& shape : elementwise_shapes())
    samples.push_back({{}, {{{DType::f32, shape}, -8.0, 8.0}}});
  // Far into both tails, where the exponential overflows and vanishes.
  samples.push_back({{}, {{{DType::f32, {101}}, -200.0, 200.0}}});
  return samples;
}

std::vector<TensorType> SiluGrad::infer(Types in) const { return infer_same(name, in, 2); }

Cost SiluGrad::cost(Types in, Types out) const {
  return streaming_cost(silu_function.gradient_flops * in[0].numel(), in, out);
}

std::optional<PointwiseStep> SiluGrad::as_step(Types) const {
  return {{.code = StepCode::silu_grad}};
}

void SiluGrad::reference(ReferenceCall& call) const { apply_derivative(silu_function, call); }

std::vector<Sample<SiluGrad>> SiluGrad::samples() {
  std::vector<Sample<SiluGrad>> samples;
  auto add = [&](const Shape& shape, double range) {
    samples.push_back({{}, {{{DType::f32, shape}}, {{DType::f32, shape}, -range, range}}});
  };
  for (const Shape& shape : elementwise_shapes()) add(shape, 8.0);
  add({101}, 200.0);
  return samples;
}

Value silu(Value x) { return x.graph->apply1(Silu{}, {x}); }

static_assert(Operator<Silu> && Differentiable<Silu>);
static_assert(Operator<SiluGrad>);

}  // namespace ridge
