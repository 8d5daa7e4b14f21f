#include "ridge/ops/unary.h"

#include "ridge/ops/elementwise.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Scale::infer(Types in) const { return infer_same(name, in, 1); }

Cost Scale::cost(Types in, Types out) const {
  return streaming_cost(in[0].numel(), in, out);  // one product per element
}

std::vector<Value> Scale::grad(GradBuilder& b) const { return {scale(b.grad(), factor)}; }

std::optional<PointwiseStep> Scale::as_step(Types) const {
  return {{.code = StepCode::scale, .factor = factor}};
}

void Scale::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) y[i] = factor * x[i];
}

std::vector<Sample<Scale>> Scale::samples() {
  std::vector<Sample<Scale>> samples;
  for (const Shape& shape : elementwise_shapes())
    samples.push_back({{.factor = -0.7f}, {{{DType::f32, shape}}}});
  return samples;
}

std::vector<TensorType> Cast::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  if (!is_floating(to))
    throw ShapeError("cast: {} has no conversion to {}", in[0].to_string(), name_of(to));
  return {{to, in[0].shape}};
}

Cost Cast::cost(Types in, Types out) const {
  return streaming_cost(0, in, out);  // a conversion is no arithmetic
}

std::vector<Value> Cast::grad(GradBuilder& b) const { return {cast(b.grad(), b.input(0).dtype())}; }

void Cast::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) y[i] = x[i];
}

std::vector<Sample<Cast>> Cast::samples() {
  std::vector<Sample<Cast>> samples;
  for (const DType to : f32_and_16_bit)
    for (const Shape& shape : elementwise_shapes())
      samples.push_back({{.to = to}, {{{DType::f32, shape}}}});
  return samples;
}

Value scale(Value x, float factor) { return x.graph->apply1(Scale{.factor = factor}, {x}); }

Value cast(Value x, DType to) { return x.dtype() == to ? x : x.graph->apply1(Cast{.to = to}, {x}); }

static_assert(Operator<Scale> && Differentiable<Scale>);
static_assert(Operator<Cast> && Differentiable<Cast>);

}  // namespace ridge
