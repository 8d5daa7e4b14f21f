#include "ridge/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

// Operand 0 holds the scores of as many queries as keys.
void check_scores(std::string_view op, Types in) {
  check_min_rank(op, in, 0, 2);
  check_dtype(op, in, 0, f32_and_16_bit);
  if (in[0].shape[-1] != in[0].shape[-2])
    throw ShapeError("{}: {} queries and {} keys are not equally many: {}", op, in[0].shape[-2],
                     in[0].shape[-1], list_of(in));
}

// The scores on and below the diagonal.
std::int64_t seen_elements(const Shape& scores) {
  return scores.rows(2) * (scores[-1] * (scores[-1] + 1) / 2);
}

// `flops` for each of these, which alone are read; the result is written entirely.
Cost masked_cost(std::int64_t flops, Types in, Types out) {
  const std::int64_t seen = seen_elements(out[0].shape);
  Cost cost = streaming_cost(flops * seen, in, out);
  cost.bytes_read = 0;
  for (const TensorType& type : in)
    cost.bytes_read += seen * static_cast<std::int64_t>(size_of(type.dtype));
  return cost;
}

}  // namespace

std::vector<TensorType> CausalMask::infer(Types in) const {
  check_count(name, in, 1);
  check_scores(name, in);
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
  check_dtype(name, in, 0);
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
  check_dtype(name, in, 0);
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

std::vector<TensorType> MaskedSoftmax::infer(Types in) const {
  check_count(name, in, 1);
  check_scores(name, in);
  return {in[0]};
}

Cost MaskedSoftmax::cost(Types in, Types out) const {
  // Per element seen: the scale, and the work of Softmax.
  return masked_cost(5, in, out);
}

std::vector<Value> MaskedSoftmax::grad(GradBuilder& b) const {
  return {b.graph().apply1(MaskedSoftmaxGrad{.scale = scale}, {b.grad(), b.output()})};
}

void MaskedSoftmax::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t extent = x.shape[-1];
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    const std::int64_t first = r * extent, last = first + r % extent;
    double max = scale * x[first], sum = 0;
    for (std::int64_t i = first; i <= last; ++i) max = std::max(max, scale * x[i]);
    for (std::int64_t i = first; i <= last; ++i) sum += std::exp(scale * x[i] - max);
    for (std::int64_t i = first; i < first + extent; ++i)
      y[i] = i <= last ? std::exp(scale * x[i] - max) / sum : 0.0;
  }
}

std::vector<Sample<MaskedSoftmax>> MaskedSoftmax::samples() {
  std::vector<Sample<MaskedSoftmax>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 7}, Shape{3, 2, 17, 17}, Shape{5, 64, 64}})
    samples.push_back({{.scale = 0.3f}, {{{DType::f32, shape}, -9.0, 9.0}}});
  samples.push_back({{.scale = -2.0f}, {{{DType::f32, {33, 33}}, -40.0, 40.0}}});
  return samples;
}

std::vector<TensorType> MaskedSoftmaxGrad::infer(Types in) const {
  check_count(name, in, 2);
  check_scores(name, in);
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost MaskedSoftmaxGrad::cost(Types in, Types out) const {
  // Per element seen: the work of SoftmaxGrad, and the scale.
  return masked_cost(5, in, out);
}

void MaskedSoftmaxGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &y = call.inputs[1], &dx = call.outputs[0];
  const std::int64_t extent = y.shape[-1];
  for (std::int64_t r = 0; r < y.shape.rows(); ++r) {
    const std::int64_t first = r * extent, last = first + r % extent;
    double dot = 0;
    for (std::int64_t i = first; i <= last; ++i) dot += dy[i] * y[i];
    for (std::int64_t i = first; i < first + extent; ++i)
      dx[i] = i <= last ? scale * y[i] * (dy[i] - dot) : 0.0;
  }
}

std::vector<Sample<MaskedSoftmaxGrad>> MaskedSoftmaxGrad::samples() {
  std::vector<Sample<MaskedSoftmaxGrad>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 7}, Shape{3, 2, 17, 17}, Shape{5, 64, 64}})
    samples.push_back({{.scale = 0.3f}, {{{DType::f32, shape}}, {{DType::f32, shape}, 0.0, 1.0}}});
  return samples;
}

Value causal_mask(Value scores) { return scores.graph->apply1(CausalMask{}, {scores}); }
Value softmax(Value x) { return x.graph->apply1(Softmax{}, {x}); }

static_assert(Operator<CausalMask> && Differentiable<CausalMask>);
static_assert(Operator<Softmax> && Differentiable<Softmax>);
static_assert(Operator<SoftmaxGrad>);
static_assert(Operator<MaskedSoftmax> && Differentiable<MaskedSoftmax>);
static_assert(Operator<MaskedSoftmaxGrad>);

}  // namespace ridge
