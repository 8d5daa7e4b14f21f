#include "ridge/ops/dropout.h"

#include "ridge/base/philox.h"
#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Dropout::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0);
  check_type(name, in, 1, {DType::i32, {}});
  if (!(rate >= 0.0f && rate < 1.0f))
    throw ShapeError("{}: the rate is at least 0 and below 1, not {}", name, rate);
  if (block < 1 || in[0].numel() % block != 0)
    throw ShapeError("{}: blocks of {} elements do not divide {}", name, block, list_of(in));
  return {in[0]};
}

Cost Dropout::cost(Types in, Types out) const {
  return streaming_cost(in[0].numel(), in, out);  // a product each
}

std::vector<Value> Dropout::grad(GradBuilder& b) const {
  return {b.graph().apply1(*this, {b.grad(), b.input(1)}), {}};
}

void Dropout::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const auto step = static_cast<std::uint64_t>(call.inputs[1][0]);
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) {
    const auto number = static_cast<std::uint64_t>(first + i / block);
    const bool stays = philox(seed, number / 4, step)[number % 4] >= threshold();
    y[i] = stays ? x[i] / (1.0 - double{rate}) : 0.0;
  }
}

std::vector<Sample<Dropout>> Dropout::samples() {
  std::vector<Sample<Dropout>> samples;
  auto add = [&](const Dropout& op, const Shape& shape) {
    samples.push_back({op, {{{DType::f32, shape}}, {{DType::i32, {}}, 3, 9}}});
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    add({.rate = 0.3f, .seed = 11}, shape);
  add({.rate = 0.0f, .seed = 11}, {40, 9});
  add({.rate = 0.5f, .seed = ~std::uint64_t{0}}, {40, 512});
  // Samples as wholes, and rows.
  add({.rate = 0.4f, .seed = 5, .block = 3 * 5 * 7}, {9, 3, 5, 7});
  add({.rate = 0.2f, .seed = 5, .block = 64}, {4, 9, 64});
  // Parts of larger tensors.
  add({.rate = 0.5f, .seed = 11, .first = 4 * 1000}, {40, 9});
  add({.rate = 0.5f, .seed = 11, .first = 7}, {130, 257});
  add({.rate = 0.4f, .seed = 5, .block = 64, .first = 37}, {9, 5, 64});
  return samples;
}

Value dropout(Value x, Value step, float rate, std::uint64_t seed, std::int64_t block) {
  return x.graph->apply1(Dropout{.rate = rate, .seed = seed, .block = block}, {x, step});
}

static_assert(Operator<Dropout> && Differentiable<Dropout>);

}  // namespace ridge
