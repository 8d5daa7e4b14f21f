#include "ridge/ops/silu.h"

#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

std::vector<TensorType> Silu::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0, dtypes);
  return {in[0]};
}

Cost Silu::cost(Types in, Types out) const {
  // Per element: exponential, add and divide for the sigmoid; one product.
  return streaming_cost(4 * in[0].numel(), in, out);
}

std::vector<Value> Silu::grad(GradBuilder& b) const {
  return {b.graph().apply1(SiluGrad{}, {b.grad(), b.input(0)})};
}

void Silu::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) y[i] = x[i] * logistic(x[i]);
}

std::vector<Sample<Silu>> Silu::samples() {
  std::vector<Sample<Silu>> samples;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    samples.push_back({{}, {{{DType::f32, shape}, -8.0, 8.0}}});
  // Far into both tails, where the exponential overflows and vanishes.
  samples.push_back({{}, {{{DType::f32, {101}}, -200.0, 200.0}}});
  return samples;
}

std::vector<TensorType> SiluGrad::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0, dtypes);
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost SiluGrad::cost(Types in, Types out) const {
  // Per element: exponential, add and divide for the sigmoid; 1 - s; its product with x; the add;
  // the products with s and dy.
  return streaming_cost(8 * in[0].numel(), in, out);
}

void SiluGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &x = call.inputs[1], &dx = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) {
    const double s = logistic(x[i]);
    dx[i] = dy[i] * s * (1.0 + x[i] * (1.0 - s));
  }
}

std::vector<Sample<SiluGrad>> SiluGrad::samples() {
  std::vector<Sample<SiluGrad>> samples;
  auto add = [&](const Shape& shape, double range) {
    samples.push_back({{}, {{{DType::f32, shape}}, {{DType::f32, shape}, -range, range}}});
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    add(shape, 8.0);
  add({101}, 200.0);
  return samples;
}

Value silu(Value x) { return x.graph->apply1(Silu{}, {x}); }

static_assert(Operator<Silu> && Differentiable<Silu>);
static_assert(Operator<SiluGrad>);

}  // namespace ridge
