#include "ridge/ops/relu.h"

#include "ridge/ops/elementwise.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Relu::infer(Types in) const { return infer_same(name, in, 1); }

Cost Relu::cost(Types in, Types out) const {
  return streaming_cost(relu_function.flops * in[0].numel(), in, out);
}

std::vector<Value> Relu::grad(GradBuilder& b) const {
  return {b.graph().apply1(ReluGrad{}, {b.grad(), b.output()})};
}

std::optional<PointwiseStep> Relu::as_step(Types) const { return {{.code = StepCode::relu}}; }

void Relu::reference(ReferenceCall& call) const { apply_value(relu_function, call); }

std::vector<Sample<Relu>> Relu::samples() {
  std::vector<Sample<Relu>> samples;
  for (const Shape& shape : elementwise_shapes()) samples.push_back({{}, {{{DType::f32, shape}}}});
  return samples;
}

std::vector<TensorType> ReluGrad::infer(Types in) const { return infer_same(name, in, 2); }

Cost ReluGrad::cost(Types in, Types out) const {
  return streaming_cost(relu_function.gradient_flops * in[0].numel(), in, out);
}

std::optional<PointwiseStep> ReluGrad::as_step(Types) const {
  return {{.code = StepCode::relu_grad}};
}

// Where y is positive, so was x.
void ReluGrad::reference(ReferenceCall& call) const { apply_derivative(relu_function, call); }

std::vector<Sample<ReluGrad>> ReluGrad::samples() {
  std::vector<Sample<ReluGrad>> samples;
  for (const Shape& shape : elementwise_shapes()) {
    const SampleInput operand{{DType::f32, shape}};
    samples.push_back({{}, {operand, operand}});
  }
  return samples;
}

Value relu(Value x) { return x.graph->apply1(Relu{}, {x}); }

static_assert(Operator<Relu> && Differentiable<Relu>);
static_assert(Operator<ReluGrad>);

}  // namespace ridge
