#include "ridge/ops/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

using Kind = ActivationKind;

constexpr Kind kinds[] = {Kind::relu6,      Kind::sigmoid, Kind::hard_sigmoid,
                          Kind::hard_swish, Kind::gelu,    Kind::tanh,
                          Kind::exp,        Kind::sqrt,    Kind::exp_capped};

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_density(double x) {
  return std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

// FLOPs of the value at one element.
std::int64_t flops_of(Kind kind) {
  switch (kind) {
    case Kind::relu6:
      return 0;
    case Kind::sigmoid:
      return 3;  // exponential, add, division
    case Kind::hard_sigmoid:
      return 2;  // add, division
    case Kind::hard_swish:
      return 3;  // and a product
    case Kind::gelu:
      return 5;  // the argument, the error function, an add, two products
    case Kind::tanh:
    case Kind::exp:
    case Kind::sqrt:
    case Kind::exp_capped:
      return 1;
  }
  return 0;
}

// FLOPs of dx at one element.
std::int64_t grad_flops_of(Kind kind) {
  switch (kind) {
    case Kind::relu6:
      return 0;
    case Kind::sigmoid:
      return 6;  // the sigmoid s, 1 - s, two products
    case Kind::hard_sigmoid:
      return 1;
    case Kind::hard_swish:
      return 3;  // x / 3 + 1/2, times dy
    case Kind::gelu:
      return 11;  // cdf (4), density (square, factor, exponential, factor), x times it, sum, times
                  // dy
    case Kind::tanh:
      return 4;  // y, its square, 1 - that, times dy
    case Kind::exp:
    case Kind::exp_capped:
      return 2;
    case Kind::sqrt:
      return 3;  // the root, a division, times dy
  }
  return 0;
}

// The part of [-range, range] where the function is defined, and so small that of a sum of its
// values one can still be told by a difference.
struct Range {
  double low, high;
  Range(Kind kind, double range)
      : low(kind == Kind::sqrt ? range / 1000 : -range),
        high(kind == Kind::exp ? std::min(range, 3.0) : range) {}
};

}  // namespace

double value_of(ActivationKind kind, double x) {
  switch (kind) {
    case Kind::relu6:
      return std::clamp(x, 0.0, 6.0);
    case Kind::sigmoid:
      return logistic(x);
    case Kind::hard_sigmoid:
      return std::clamp(x + 3.0, 0.0, 6.0) / 6.0;
    case Kind::hard_swish:
      return x * std::clamp(x + 3.0, 0.0, 6.0) / 6.0;
    case Kind::gelu:
      return x * normal_cdf(x);
    case Kind::tanh:
      return std::tanh(x);
    case Kind::exp:
      return std::exp(x);
    case Kind::sqrt:
      return std::sqrt(x);
    case Kind::exp_capped:
      return std::min(std::exp(x), 100.0);
  }
  return x;
}

double derivative_of(ActivationKind kind, double x) {
  switch (kind) {
    case Kind::relu6:
      return x > 0 && x < 6 ? 1.0 : 0.0;
    case Kind::sigmoid:
      return logistic(x) * logistic(-x);
    case Kind::hard_sigmoid:
      return x > -3 && x < 3 ? 1.0 / 6 : 0.0;
    case Kind::hard_swish:
      return x <= -3 ? 0.0 : (x >= 3 ? 1.0 : x / 3 + 0.5);
    case Kind::gelu:
      return normal_cdf(x) + x * normal_density(x);
    case Kind::tanh:
      return 1.0 / (std::cosh(x) * std::cosh(x));
    case Kind::exp:
      return std::exp(x);
    case Kind::sqrt:
      return 0.5 / std::sqrt(x);
    case Kind::exp_capped:
      return std::exp(x) <= 100.0 ? std::exp(x) : 0.0;
  }
  return 1;
}

std::string_view name_of(ActivationKind kind) {
  switch (kind) {
    case Kind::relu6:
      return "relu6";
    case Kind::sigmoid:
      return "sigmoid";
    case Kind::hard_sigmoid:
      return "hard_sigmoid";
    case Kind::hard_swish:
      return "hard_swish";
    case Kind::gelu:
      return "gelu";
    case Kind::tanh:
      return "tanh";
    case Kind::exp:
      return "exp";
    case Kind::sqrt:
      return "sqrt";
    case Kind::exp_capped:
      return "exp_capped";
  }
  return "";
}

std::vector<TensorType> Activation::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0, dtypes);
  return {in[0]};
}

Cost Activation::cost(Types in, Types out) const {
  return streaming_cost(flops_of(kind) * in[0].numel(), in, out);
}

std::vector<Value> Activation::grad(GradBuilder& b) const {
  return {b.graph().apply1(ActivationGrad{kind}, {b.grad(), b.input(0)})};
}

std::string_view Activation::aten_name(Types) const {
  switch (kind) {
    case ActivationKind::relu6:
      return "aten::relu6";
    case ActivationKind::sigmoid:
      return "aten::sigmoid";
    case ActivationKind::hard_sigmoid:
      return "aten::hardsigmoid";
    case ActivationKind::hard_swish:
      return "aten::hardswish";
    case ActivationKind::gelu:
      return "aten::gelu";
    case ActivationKind::tanh:
      return "aten::tanh";
    case ActivationKind::exp:
      return "aten::exp";
    case ActivationKind::sqrt:
      return "aten::sqrt";
    case ActivationKind::exp_capped:
      break;
  }
  return "";
}

void Activation::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) y[i] = value_of(kind, x[i]);
}

std::vector<Sample<Activation>> Activation::samples() {
  std::vector<Sample<Activation>> samples;
  for (const Kind kind : kinds) {
    const auto add = [&](const Shape& shape, double range) {
      const Range within(kind, range);
      samples.push_back({{kind}, {{{DType::f32, shape}, within.low, within.high}}});
    };
    for (const Shape& shape : {Shape{}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
      add(shape, 8.0);
    add({101}, 200.0);  // far into both tails
    add({101}, 0.01);
  }
  return samples;
}

std::vector<TensorType> ActivationGrad::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0, dtypes);
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost ActivationGrad::cost(Types in, Types out) const {
  return streaming_cost(grad_flops_of(kind) * in[0].numel(), in, out);
}

// Those of PyTorch that take x: others take the result.
std::string_view ActivationGrad::aten_name(Types) const {
  switch (kind) {
    case ActivationKind::relu6:
      return "aten::hardtanh_backward";
    case ActivationKind::hard_sigmoid:
      return "aten::hardsigmoid_backward";
    case ActivationKind::hard_swish:
      return "aten::hardswish_backward";
    case ActivationKind::gelu:
      return "aten::gelu_backward";
    case ActivationKind::sigmoid:
    case ActivationKind::tanh:
    case ActivationKind::exp:
    case ActivationKind::sqrt:
    case ActivationKind::exp_capped:
      break;
  }
  return "";
}

void ActivationGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &x = call.inputs[1], &dx = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) dx[i] = dy[i] * derivative_of(kind, x[i]);
}

std::vector<Sample<ActivationGrad>> ActivationGrad::samples() {
  std::vector<Sample<ActivationGrad>> samples;
  auto add = [&](Kind kind, const Shape& shape, double range) {
    const Range within(kind, range);
    samples.push_back(
        {{kind}, {{{DType::f32, shape}}, {{DType::f32, shape}, within.low, within.high}}});
  };
  for (const Kind kind : kinds) {
    for (const Shape& shape : {Shape{}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
      add(kind, shape, 8.0);
    add(kind, {101}, 200.0);
    add(kind, {101}, 0.01);
  }
  return samples;
}

Value activation(Value x, ActivationKind kind) { return x.graph->apply1(Activation{kind}, {x}); }

static_assert(Operator<Activation> && Differentiable<Activation>);
static_assert(Operator<ActivationGrad>);

}  // namespace ridge
