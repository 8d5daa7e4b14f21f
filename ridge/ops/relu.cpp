#include "ridge/ops/relu.h"

#include <algorithm>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Relu::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0, dtypes);
  return {in[0]};
}

Cost Relu::cost(Types in, Types out) const {
  return streaming_cost(0, in, out);  // comparisons are not counted
}

std::vector<Value> Relu::grad(GradBuilder& b) const {
  return {b.graph().apply1(ReluGrad{}, {b.grad(), b.output()})};
}

void Relu::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) y[i] = std::max(x[i], 0.0);
}

std::vector<Sample<Relu>> Relu::samples() {
  std::vector<Sample<Relu>> samples;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    samples.push_back({{}, {{{DType::f32, shape}}}});
  return samples;
}

std::vector<TensorType> ReluGrad::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0, dtypes);
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost ReluGrad::cost(Types in, Types out) const { return streaming_cost(0, in, out); }

void ReluGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &y = call.inputs[1], &dx = call.outputs[0];
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) dx[i] = y[i] > 0 ? dy[i] : 0.0;
}

std::vector<Sample<ReluGrad>> ReluGrad::samples() {
  std::vector<Sample<ReluGrad>> samples;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}}) {
    const SampleInput operand{{DType::f32, shape}};
    samples.push_back({{}, {operand, operand}});
  }
  return samples;
}

Value relu(Value x) { return x.graph->apply1(Relu{}, {x}); }

static_assert(Operator<Relu> && Differentiable<Relu>);
static_assert(Operator<ReluGrad>);

}  // namespace ridge
