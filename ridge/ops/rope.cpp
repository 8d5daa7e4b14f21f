#include "ridge/ops/rope.h"

#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Rope::infer(Types in) const {
  check_count(name, in, 1);
  check_min_rank(name, in, 0, 2);
  check_dtype(name, in, 0);
  if (in[0].shape[-1] % 2 != 0)
    throw ShapeError("rope rotates pairs, and {} elements are not even: {}", in[0].shape[-1],
                     list_of(in));
  return {in[0]};
}

Cost Rope::cost(Types in, Types out) const {
  // Per pair: four products, a sum and a difference. The table of angles is made once, not here.
  return streaming_cost(6 * (in[0].numel() / 2), in, out);
}

std::vector<Value> Rope::grad(GradBuilder& b) const {
  return {b.graph().apply1(Rope{.theta = theta, .inverse = !inverse}, {b.grad()})};
}

void Rope::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t positions = x.shape[-2], columns = x.shape[-1];
  for (std::int64_t r = 0; r < x.shape.rows(); ++r)
    for (std::int64_t c = 0; c < columns; c += 2) {
      const double exponent = -static_cast<double>(c) / static_cast<double>(columns);
      const double position = static_cast<double>(r % positions) * (inverse ? -1.0 : 1.0);
      const double angle = position * std::pow(static_cast<double>(theta), exponent);
      const double x0 = x[r * columns + c], x1 = x[r * columns + c + 1];
      y[r * columns + c] = x0 * std::cos(angle) - x1 * std::sin(angle);
      y[r * columns + c + 1] = x0 * std::sin(angle) + x1 * std::cos(angle);
    }
}

std::vector<Sample<Rope>> Rope::samples() {
  std::vector<Sample<Rope>> samples;
  for (const bool inverse : {false, true})
    for (const Shape& shape :
         {Shape{1, 2}, Shape{7, 6}, Shape{3, 5, 2}, Shape{2, 3, 11, 34}, Shape{4, 100, 64}})
      samples.push_back({{.inverse = inverse}, {{{DType::f32, shape}}}});
  samples.push_back({{.theta = 500.0f}, {{{DType::f32, {2, 9, 16}}}}});
  return samples;
}

Value rope(Value x, float theta) { return x.graph->apply1(Rope{.theta = theta}, {x}); }

static_assert(Operator<Rope> && Differentiable<Rope>);

}  // namespace ridge
