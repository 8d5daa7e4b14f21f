#include "ridge/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> CausalMask::infer(Types in) const {
  check_count(name, in, 1);
  check_min_rank(name, in, 0, 2);
  check_dtype(name, in, 0, dtypes);
  if (in[0].shape[-1] != in[0].shape[-2])
    throw ShapeError("causal_mask: {} queries and {} keys are not equally many: {}",
                     in[0].shape[-2], in[0].shape[-1], list_of(in));
  return {in[0]};
}

Cost CausalMask::cost(Types in, Types out) const { return streaming_cost(0, in, out); }

std::vector<Value> CausalMask::grad(GradBuilder& b) const {
  // Beyond the diagonal the result is constant, whatever the constant.
  return {b.graph().apply1(CausalMask{.value = 0.0f}, {b.grad()})};
}

void CausalMask::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t extent = x.shape[-1];
  for (std::int64_t r = 0; r < x.shape.rows(); ++r)
    for (std::int64_t k = 0; k < extent; ++k)
      y[r * extent + k] = k <= r % extent ? x[r * extent + k] : static_cast<double>(value);
}

std::vector<Sample<CausalMask>> CausalMask::samples() {
  std::vector<Sample<CausalMask>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 7}, Shape{3, 2, 17, 17}, Shape{5, 64, 64}})
    for (const CausalMask& op : {CausalMask{}, CausalMask{.value = 0.0f}})
      samples.push_back({op, {{{DType::f32, shape}}}});
  return samples;
}

std::vector<TensorType> Softmax::infer(Types in) const {
  check_count(name, in, 1);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0, dtypes);
  return {in[0]};
}

Cost Softmax::cost(Types in, Types out) const {
  // Per element: less the maximum, exp, sum, division. Comparisons for the maximum are not counted.
  return streaming_cost(4 * in[0].numel(), in, out);
}

std::vector<Value> Softmax::grad(GradBuilder& b) const {
  return {b.graph().apply1(SoftmaxGrad{}, {b.grad(), b.output()})};
}

void Softmax::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t columns = x.shape[-1];
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    double max = x[r * columns], sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) max = std::max(max, x[r * columns + c]);
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(x[r * columns + c] - max);
    for (std::int64_t c = 0; c < columns; ++c)
      y[r * columns + c] = std::exp(x[r * columns + c] - max) / sum;
  }
}

std::vector<Sample<Softmax>> Softmax::samples() {
  std::vector<Sample<Softmax>> samples;
  for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{300, 64}})
    samples.push_back({{}, {{{DType::f32, shape}, -3.0, 3.0}}});
  samples.push_back({{}, {{{DType::f32, {5, 19}}, -80.0, 80.0}}});
  return samples;
}

std::vector<TensorType> SoftmaxGrad::infer(Types in) const {
  check_count(name, in, 2);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0, dtypes);
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost SoftmaxGrad::cost(Types in, Types out) const {
  // Per element: the product summed (2), a difference, a product.
  return streaming_cost(4 * in[0].numel(), in, out);
}

void SoftmaxGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &y = call.inputs[1], &dx = call.outputs[0];
  const std::int64_t columns = y.shape[-1];
  for (std::int64_t r = 0; r < y.shape.rows(); ++r) {
    double dot = 0;
    for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) dot += dy[i] * y[i];
    for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) dx[i] = y[i] * (dy[i] - dot);
  }
}

std::vector<Sample<SoftmaxGrad>> SoftmaxGrad::samples() {
  std::vector<Sample<SoftmaxGrad>> samples;
  for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{300, 64}})
    samples.push_back({{}, {{{DType::f32, shape}}, {{DType::f32, shape}, 0.0, 1.0}}});
  return samples;
}

Value causal_mask(Value scores) { return scores.graph->apply1(CausalMask{}, {scores}); }
Value softmax(Value x) { return x.graph->apply1(Softmax{}, {x}); }

static_assert(Operator<CausalMask> && Differentiable<CausalMask>);
static_assert(Operator<Softmax> && Differentiable<Softmax>);
static_assert(Operator<SoftmaxGrad>);

}  // namespace ridge
