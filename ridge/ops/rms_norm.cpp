#include "ridge/ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/norm_types.h"
#include "ridge/ops/op.h"
#include "ridge/ops/unary.h"

namespace ridge {
namespace {

double away_from_zero(double weight) {
  return std::copysign(std::max<double>(std::abs(weight), least_norm_weight), weight);
}

// y and rstd of the rows of x.
void normalize(const ReferenceTensor& x, const ReferenceTensor& weight, double eps, bool invertible,
               const ReferenceTensor& y, const ReferenceTensor& rstd) {
  const std::int64_t columns = x.shape[-1];
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += x[r * columns + c] * x[r * columns + c];
    rstd[r] = 1.0 / std::sqrt(sum / static_cast<double>(columns) + eps);
    for (std::int64_t c = 0; c < columns; ++c)
      y[r * columns + c] =
          x[r * columns + c] * rstd[r] * (invertible ? away_from_zero(weight[c]) : weight[c]);
  }
}

// dx and dweight from the operands of RmsNormGrad, with y where x would be if `from_result`.
void differentiate(std::span<const ReferenceTensor> inputs, bool from_result,
                   const ReferenceTensor& dx, const ReferenceTensor& dweight) {
  constexpr RmsNormGrad::Operands at = RmsNormGrad::operands();
  const auto &dy = inputs[at.dy], &x = inputs[at.x];
  const auto &weight = inputs[at.weight], &rstd = inputs[at.rstd];
  const std::int64_t columns = x.shape[-1];
  for (std::int64_t c = 0; c < columns; ++c) dweight[c] = 0;
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    const auto xhat = [&](std::int64_t c) {
      const double value = x[r * columns + c];
      return from_result ? value / away_from_zero(weight[c]) : value * rstd[r];
    };
    double mean = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      const double dy_xhat = dy[r * columns + c] * xhat(c);
      mean += weight[c] * dy_xhat / static_cast<double>(columns);
      dweight[c] += dy_xhat;
    }
    for (std::int64_t c = 0; c < columns; ++c)
      dx[r * columns + c] = rstd[r] * (weight[c] * dy[r * columns + c] - xhat(c) * mean);
  }
}

}  // namespace

std::vector<TensorType> RmsNorm::infer(Types in) const {
  check_count(name, in, 2);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0);
  check_type(name, in, 1, per_column(in[0]));
  const DType y = out.value_or(in[0].dtype);
  check_one_16_bit(name, in, in[0].dtype, y);
  return {{y, in[0].shape}, per_row(in[0])};
}

Cost RmsNorm::cost(Types in, Types results) const {
  // Per element: square and add, times rstd, times weight. Per row: mean, eps, root, inverse.
  return streaming_cost(4 * in[0].numel() + 4 * results[1].numel(), in, results);
}

std::vector<Value> RmsNorm::grad(GradBuilder& b) const {
  return b.graph().apply(RmsNormGrad{}, std::array{b.grad(), b.input(0), b.input(1), b.output(1)});
}

void RmsNorm::reference(ReferenceCall& call) const {
  normalize(call.inputs[0], call.inputs[1], eps, invertible, call.outputs[0], call.outputs[1]);
}

std::vector<Sample<RmsNorm>> RmsNorm::samples() {
  std::vector<Sample<RmsNorm>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{40, 256}})
    for (const auto y :
         {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)})
      samples.push_back(
          {{.out = y}, {{{DType::f32, shape}}, {{DType::f32, {shape[-1]}}, 0.5, 1.5}}});
  return samples;
}

std::vector<TensorType> RmsNormGrad::infer(Types in) const {
  constexpr Operands at = operands();
  check_count(name, in, at.count);
  const TensorType &dy = in[at.dy], &x = in[at.x];
  check_min_rank(name, in, at.x, 1);
  check_dtype(name, in, at.dy);
  check_dtype(name, in, at.x);
  check_type(name, in, at.dy, {dy.dtype, x.shape});
  check_one_16_bit(name, in, dy.dtype, x.dtype);
  check_type(name, in, at.weight, per_column(x));
  check_type(name, in, at.rstd, per_row(x));
  return {{from_result ? DType::f32 : x.dtype, x.shape}, in[at.weight]};
}

Cost RmsNormGrad::cost(Types in, Types out) const {
  // Per element: xhat; w dy; its product with xhat summed (2); dx (3); dweight (2). Per row: mean.
  return streaming_cost(9 * in[operands().x].numel() + in[operands().rstd].numel(), in, out);
}

void RmsNormGrad::reference(ReferenceCall& call) const {
  differentiate(call.inputs, from_result, call.outputs[0], call.outputs[1]);
}

std::vector<Sample<RmsNormGrad>> RmsNormGrad::samples() {
  std::vector<Sample<RmsNormGrad>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{300, 64}}) {
    const TensorType x{DType::f32, shape};
    for (const bool from_result : {false, true})
      samples.push_back({{.from_result = from_result},
                         {{x}, {x}, {per_column(x), 0.5, 1.5}, {per_row(x), 0.5, 2.0}}});
  }
  return samples;
}

std::vector<TensorType> AddRmsNorm::infer(Types in) const {
  check_count(name, in, 3);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0, f32_only);
  check_dtype(name, in, 1);
  check_type(name, in, 1, {in[1].dtype, in[0].shape});
  check_type(name, in, 2, per_column(in[0]));
  check_one_16_bit(name, in, in[1].dtype, out);
  return {in[0], {out, in[0].shape}, per_row(in[0])};
}

Cost AddRmsNorm::cost(Types in, Types results) const {
  // The sum, and the work of RmsNorm.
  return streaming_cost(5 * in[0].numel() + 4 * results[2].numel(), in, results);
}

std::vector<Value> AddRmsNorm::grad(GradBuilder& b) const {
  if (b.grad(2)) throw UsageError("add_rms_norm: sum and y have gradients, but rstd has none");
  const Value dsum = b.grad(0), dy = b.grad(1);
  const DType delta = b.input(1).dtype();
  if (!dy) return {dsum, cast(dsum, delta), {}};
  std::vector<Value> operands;
  if (dsum) operands.push_back(dsum);
  for (const Value& value : {dy, b.output(0), b.input(2), b.output(2)}) operands.push_back(value);
  std::optional<DType> round_delta;
  if (delta != DType::f32) round_delta = delta;
  const auto grads = b.graph().apply(AddRmsNormGrad{.round_delta = round_delta}, operands);
  return {grads[0], round_delta ? grads[2] : grads[0], grads[1]};
}

void AddRmsNorm::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &delta = call.inputs[1], &sum = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) sum[i] = x[i] + delta[i];
  normalize(sum, call.inputs[2], eps, invertible, call.outputs[1], call.outputs[2]);
}

std::vector<Sample<AddRmsNorm>> AddRmsNorm::samples() {
  std::vector<Sample<AddRmsNorm>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{40, 256}})
    for (const DType y : {DType::f32, DType::bf16, DType::f16}) {
      const TensorType x{DType::f32, shape};
      samples.push_back({{.out = y}, {{x}, {x}, {per_column(x), 0.5, 1.5}}});
    }
  return samples;
}

std::vector<TensorType> AddRmsNormGrad::infer(Types in) const {
  const Operands at = operands(in.size());
  check_count(name, in, at.count);
  check_min_rank(name, in, at.sum, 1);
  check_dtype(name, in, at.dy);
  check_dtype(name, in, at.sum, from_result ? DTypes(f32_and_16_bit) : DTypes(f32_only));
  const TensorType sum{DType::f32, in[at.sum].shape};
  check_type(name, in, at.dy, {in[at.dy].dtype, sum.shape});
  check_one_16_bit(name, in, in[at.dy].dtype, in[at.sum].dtype);
  check_type(name, in, at.weight, per_column(sum));
  check_type(name, in, at.rstd, per_row(sum));
  if (at.dsum < at.count) check_type(name, in, at.dsum, sum);
  std::vector<TensorType> out{sum, per_column(sum)};
  if (round_delta) out.push_back({*round_delta, sum.shape});
  return out;
}

Cost AddRmsNormGrad::cost(Types in, Types out) const {
  // The work of RmsNormGrad, and the sum with dsum.
  const Operands at = operands(in.size());
  const std::int64_t each = at.dsum < at.count ? 10 : 9;
  return streaming_cost(each * out[0].numel() + in[at.rstd].numel(), in, out);
}

void AddRmsNormGrad::reference(ReferenceCall& call) const {
  const auto& dx = call.outputs[0];
  const Operands at = operands(call.inputs.size());
  differentiate(call.inputs.subspan(at.dy), from_result, dx, call.outputs[1]);
  for (std::int64_t i = 0; i < dx.shape.numel(); ++i) {
    if (at.dsum < at.count) dx[i] += call.inputs[at.dsum][i];
    if (round_delta) call.outputs[2][i] = dx[i];
  }
}

std::vector<Sample<AddRmsNormGrad>> AddRmsNormGrad::samples() {
  std::vector<Sample<AddRmsNormGrad>> samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{300, 64}})
    for (const auto round_delta :
         {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)})
      for (const bool from_result : {false, true}) {
        const TensorType x{DType::f32, shape};
        const std::vector<SampleInput> operands{
            {x}, {x}, {x}, {per_column(x), 0.5, 1.5}, {per_row(x), 0.5, 2.0}};
        const AddRmsNormGrad op{.round_delta = round_delta, .from_result = from_result};
        samples.push_back({op, operands});
        samples.push_back({op, {operands.begin() + 1, operands.end()}});
      }
  return samples;
}

Value rms_norm(Value x, Value weight, float eps) {
  return x.graph->apply(RmsNorm{.eps = eps}, std::array{x, weight})[0];
}

static_assert(Operator<RmsNorm> && Differentiable<RmsNorm>);
static_assert(Operator<RmsNormGrad>);
static_assert(Operator<AddRmsNorm> && Differentiable<AddRmsNorm>);
static_assert(Operator<AddRmsNormGrad>);

}  // namespace ridge
