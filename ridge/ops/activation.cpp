#include "ridge/ops/activation.h"

#include <algorithm>

#include "ridge/ops/elementwise.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

using Kind = ActivationKind;

// Calls add(op, shape, low, high) for each kind: with shapes, and with the range of x in which the
// function is defined, and so small that of a sum of its values one can still be told by a
// difference.
template <class T, class Add>
void for_each_sample(const Add& add) {
  for (std::size_t k = 0; k < activation_kinds; ++k) {
    const auto kind = static_cast<Kind>(k);
    const auto within = [&](const Shape& shape, double range) {
      add(T{kind}, shape, kind == Kind::sqrt ? range / 1000 : -range,
          kind == Kind::exp ? std::min(range, 3.0) : range);
    };
    for (const Shape& shape : {Shape{}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
      within(shape, 8.0);
    within({101}, 200.0);  // far into both tails
    within({101}, 0.01);
  }
}

}  // namespace

std::vector<TensorType> Activation::infer(Types in) const { return infer_same(name, in, 1); }

Cost Activation::cost(Types in, Types out) const {
  return streaming_cost(element_function(kind).flops * in[0].numel(), in, out);
}

std::vector<Value> Activation::grad(GradBuilder& b) const {
  return {b.graph().apply1(ActivationGrad{kind}, {b.grad(), b.input(0)})};
}

std::optional<PointwiseStep> Activation::as_step(Types) const {
  return {{.code = StepCode::activation, .kind = kind}};
}

Epilogue Activation::as_epilogue() const {
  for (const Epilogue e : {Epilogue::relu6, Epilogue::hard_swish, Epilogue::gelu})
    if (&element_function(e) == &element_function(kind)) return e;
  return Epilogue::none;
}

void Activation::reference(ReferenceCall& call) const { apply_value(element_function(kind), call); }

std::vector<Sample<Activation>> Activation::samples() {
  std::vector<Sample<Activation>> samples;
  for_each_sample<Activation>([&](Activation op, const Shape& shape, double low, double high) {
    samples.push_back({op, {{{DType::f32, shape}, low, high}}});
  });
  return samples;
}

std::vector<TensorType> ActivationGrad::infer(Types in) const { return infer_same(name, in, 2); }

Cost ActivationGrad::cost(Types in, Types out) const {
  return streaming_cost(element_function(kind).gradient_flops * in[0].numel(), in, out);
}

std::optional<PointwiseStep> ActivationGrad::as_step(Types) const {
  return {{.code = StepCode::activation_grad, .kind = kind}};
}

void ActivationGrad::reference(ReferenceCall& call) const {
  apply_derivative(element_function(kind), call);
}

std::vector<Sample<ActivationGrad>> ActivationGrad::samples() {
  std::vector<Sample<ActivationGrad>> samples;
  for_each_sample<ActivationGrad>(
      [&](ActivationGrad op, const Shape& shape, double low, double high) {
        samples.push_back({op, {{{DType::f32, shape}}, {{DType::f32, shape}, low, high}}});
      });
  return samples;
}

Value activation(Value x, ActivationKind kind) { return x.graph->apply1(Activation{kind}, {x}); }

static_assert(Operator<Activation> && Differentiable<Activation>);
static_assert(Operator<ActivationGrad>);

}  // namespace ridge
