#include "ridge/ops/layer_norm.h"

#include <array>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/norm_types.h"
#include "ridge/ops/op.h"

namespace ridge {
std::vector<TensorType> LayerNorm::infer(Types in) const {
  check_count(name, in, 3);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0);
  check_type(name, in, 1, per_column(in[0]));
  check_type(name, in, 2, per_column(in[0]));
  return {in[0], per_row(in[0]), per_row(in[0])};
}

Cost LayerNorm::cost(Types in, Types out) const {
  // Per element: the mean's sum; the difference from it, its square and their sum; times rstd and
  // weight, plus bias. Per row: mean, variance, eps, root, inverse.
  return streaming_cost(7 * in[0].numel() + 5 * out[1].numel(), in, out);
}

std::vector<Value> LayerNorm::grad(GradBuilder& b) const {
  return b.graph().apply(LayerNormGrad{},
                         std::array{b.grad(), b.input(0), b.input(1), b.output(1), b.output(2)});
}

void LayerNorm::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &weight = call.inputs[1], &bias = call.inputs[2];
  const auto &y = call.outputs[0], &mean = call.outputs[1], &rstd = call.outputs[2];
  const std::int64_t columns = x.shape[-1];
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += x[r * columns + c];
    mean[r] = sum / static_cast<double>(columns);
    for (std::int64_t c = 0; c < columns; ++c)
      squares += (x[r * columns + c] - mean[r]) * (x[r * columns + c] - mean[r]);
    rstd[r] = 1.0 / std::sqrt(squares / static_cast<double>(columns) + double{eps});
    for (std::int64_t c = 0; c < columns; ++c)
      y[r * columns + c] = (x[r * columns + c] - mean[r]) * rstd[r] * weight[c] + bias[c];
  }
}

std::vector<Sample<LayerNorm>> LayerNorm::samples() {
  std::vector<Sample<LayerNorm>> samples;
  for (const Shape& shape :
       {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{40, 256}, Shape{7, 768}, Shape{3, 9000}}) {
    const TensorType x{DType::f32, shape}, c = per_column(x);
    samples.push_back({{}, {{x, -1.0, 2.0}, {c, 0.5, 1.5}, {c}}});
  }
  // A mean far from zero.
  samples.push_back(
      {{.eps = 1e-6f},
       {{{DType::f32, {9, 96}}, 20.0, 21.0}, {{DType::f32, {96}}}, {{DType::f32, {96}}}}});
  return samples;
}

std::vector<TensorType> LayerNormGrad::infer(Types in) const {
  constexpr Operands at = operands();
  check_count(name, in, at.count);
  check_min_rank(name, in, at.x, 1);
  check_dtype(name, in, at.x);
  check_same_type(name, in, at.dy, at.x);
  check_type(name, in, at.weight, per_column(in[at.x]));
  check_type(name, in, at.mean, per_row(in[at.x]));
  check_type(name, in, at.rstd, per_row(in[at.x]));
  return {in[at.x], in[at.weight], in[at.weight]};
}

Cost LayerNormGrad::cost(Types in, Types out) const {
  // Per element: xhat (2); g (1), its sum (1) and that of g * xhat (2); dx (4); dweight (2) and
  // dbias (1). Per row: two means.
  return streaming_cost(13 * in[operands().x].numel() + 2 * in[operands().mean].numel(), in, out);
}

void LayerNormGrad::reference(ReferenceCall& call) const {
  constexpr Operands at = operands();
  const auto &dy = call.inputs[at.dy], &x = call.inputs[at.x], &weight = call.inputs[at.weight];
  const auto &mean = call.inputs[at.mean], &rstd = call.inputs[at.rstd];
  const auto &dx = call.outputs[0], &dweight = call.outputs[1], &dbias = call.outputs[2];
  const std::int64_t columns = x.shape[-1];
  const auto count = static_cast<double>(columns);
  for (std::int64_t c = 0; c < columns; ++c) dweight[c] = dbias[c] = 0;
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    double mean_g = 0, mean_product = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t i = r * columns + c;
      const double xhat = (x[i] - mean[r]) * rstd[r], g = weight[c] * dy[i];
      mean_g += g / count;
      mean_product += g * xhat / count;
      dweight[c] += dy[i] * xhat;
      dbias[c] += dy[i];
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t i = r * columns + c;
      const double xhat = (x[i] - mean[r]) * rstd[r];
      dx[i] = rstd[r] * (weight[c] * dy[i] - mean_g - xhat * mean_product);
    }
  }
}

std::vector<Sample<LayerNormGrad>> LayerNormGrad::samples() {
  std::vector<Sample<LayerNormGrad>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{300, 64},
                             Shape{19, 768}, Shape{3, 9000}}) {
    const TensorType x{DType::f32, shape}, c = per_column(x), r = per_row(x);
    samples.push_back({{}, {{x}, {x}, {c, 0.5, 1.5}, {r}, {r, 0.5, 2.0}}});
  }
  return samples;
}

Value layer_norm(Value x, Value weight, Value bias, float eps) {
  return x.graph->apply(LayerNorm{.eps = eps}, std::array{x, weight, bias})[0];
}

static_assert(Operator<LayerNorm> && Differentiable<LayerNorm>);
static_assert(Operator<LayerNormGrad>);

}  // namespace ridge
