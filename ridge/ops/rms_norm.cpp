#include "ridge/ops/rms_norm.h"

#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

TensorType per_row(const TensorType& x) {
  const auto dims = x.shape.dims();
  return {DType::f32, Shape(dims.first(dims.size() - 1))};
}

TensorType per_column(const TensorType& x) { return {DType::f32, {x.shape[-1]}}; }

}  // namespace

std::vector<TensorType> RmsNorm::infer(Types in) const {
  check_count(name, in, 2);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0, dtypes);
  check_type(name, in, 1, per_column(in[0]));
  return {in[0], per_row(in[0])};
}

Cost RmsNorm::cost(Types in, Types out) const {
  // Per element: square and add, times rstd, times weight. Per row: mean, eps, root, inverse.
  return streaming_cost(4 * in[0].numel() + 4 * out[1].numel(), in, out);
}

std::vector<Value> RmsNorm::grad(GradBuilder& b) const {
  return b.graph().apply(RmsNormGrad{}, std::array{b.grad(), b.input(0), b.input(1), b.output(1)});
}

void RmsNorm::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &weight = call.inputs[1];
  const auto &y = call.outputs[0], &rstd = call.outputs[1];
  const std::int64_t columns = x.shape[-1];
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += x[r * columns + c] * x[r * columns + c];
    rstd[r] = 1.0 / std::sqrt(sum / static_cast<double>(columns) + eps);
    for (std::int64_t c = 0; c < columns; ++c)
      y[r * columns + c] = x[r * columns + c] * rstd[r] * weight[c];
  }
}

std::vector<Sample<RmsNorm>> RmsNorm::samples() {
  std::vector<Sample<RmsNorm>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{40, 256}})
    samples.push_back({{}, {{{DType::f32, shape}}, {{DType::f32, {shape[-1]}}, 0.5, 1.5}}});
  return samples;
}

std::vector<TensorType> RmsNormGrad::infer(Types in) const {
  check_count(name, in, 4);
  check_min_rank(name, in, 1, 1);
  check_dtype(name, in, 1, dtypes);
  check_same_type(name, in, 0, 1);
  check_type(name, in, 2, per_column(in[1]));
  check_type(name, in, 3, per_row(in[1]));
  return {in[1], in[2]};
}

Cost RmsNormGrad::cost(Types in, Types out) const {
  // Per element: xhat; w dy; its product with xhat summed (2); dx (3); dweight (2). Per row: mean.
  return streaming_cost(9 * in[1].numel() + in[3].numel(), in, out);
}

void RmsNormGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &x = call.inputs[1], &weight = call.inputs[2],
             &rstd = call.inputs[3];
  const auto &dx = call.outputs[0], &dweight = call.outputs[1];
  const std::int64_t columns = x.shape[-1];
  for (std::int64_t c = 0; c < columns; ++c) dweight[c] = 0;
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    double mean = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t i = r * columns + c;
      mean += weight[c] * dy[i] * x[i] * rstd[r] / static_cast<double>(columns);
      dweight[c] += dy[i] * x[i] * rstd[r];
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t i = r * columns + c;
      dx[i] = rstd[r] * (weight[c] * dy[i] - x[i] * rstd[r] * mean);
    }
  }
}

std::vector<Sample<RmsNormGrad>> RmsNormGrad::samples() {
  std::vector<Sample<RmsNormGrad>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{300, 64}}) {
    const TensorType x{DType::f32, shape};
    samples.push_back({{}, {{x}, {x}, {per_column(x), 0.5, 1.5}, {per_row(x), 0.5, 2.0}}});
  }
  return samples;
}

Value rms_norm(Value x, Value weight, float eps) {
  return x.graph->apply(RmsNorm{.eps = eps}, std::array{x, weight})[0];
}

static_assert(Operator<RmsNorm> && Differentiable<RmsNorm>);
static_assert(Operator<RmsNormGrad>);

}  // namespace ridge
