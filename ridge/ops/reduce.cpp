#include "ridge/ops/reduce.h"

#include "ridge/ops/binary.h"
#include "ridge/ops/check.h"
#include "ridge/ops/fill.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

bool broadcasts_to(const Shape& small, const Shape& large) {
  if (small.rank() > large.rank()) return false;
  for (int d = 1; d <= static_cast<int>(small.rank()); ++d)
    if (small[-d] != 1 && small[-d] != large[-d]) return false;
  return true;
}

}  // namespace

std::vector<TensorType> SumTo::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  if (!broadcasts_to(shape, in[0].shape))
    throw ShapeError("sum_to: {} does not broadcast to the operand's shape: {}", shape.to_string(),
                     in[0].to_string());
  return {{in[0].dtype, shape}};
}

Cost SumTo::cost(Types in, Types out) const {
  // A sum of n elements takes n - 1 adds.
  return streaming_cost(in[0].numel() - out[0].numel(), in, out);
}

std::vector<Value> SumTo::grad(GradBuilder& b) const {
  // Every summand gets the gradient of its sum; adding to zeros broadcasts it.
  return {add(fill(b.graph(), b.input(0).type(), 0.0f), b.grad())};
}

void SumTo::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) y[i] = 0;
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) {
    std::int64_t target = 0, stride = 1, rest = i;
    for (int d = 1; d <= static_cast<int>(y.shape.rank()); ++d) {
      if (y.shape[-d] != 1) target += rest % x.shape[-d] * stride;
      rest /= x.shape[-d];
      stride *= y.shape[-d];
    }
    y[target] += x[i];
  }
}

std::vector<Sample<SumTo>> SumTo::samples() {
  std::vector<Sample<SumTo>> samples;
  auto sample = [&](const Shape& from, const Shape& to) {
    samples.push_back({{.shape = to}, {{{DType::f32, from}}}});
  };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}}) sample(shape, shape);
  // Over rows, over columns, over everything.
  for (const Shape& from : {Shape{3, 7}, Shape{61, 33}, Shape{700, 65}, Shape{2, 9001}})
    for (const Shape& to : {Shape{from[1]}, Shape{from[0], 1}, Shape{}}) sample(from, to);
  // Over the outermost and the innermost, as for a bias of channels; over every other dimension.
  sample({3, 5, 4, 7}, {5, 1, 1});
  sample({3, 5, 4, 7}, {3, 1, 4, 1});
  sample({3, 5, 4, 7}, {1, 5, 1, 7});
  sample({2, 3, 2, 3, 2, 3}, {3, 1, 3, 1, 3});
  return samples;
}

Value sum_to(Value x, const Shape& shape) {
  return x.shape() == shape ? x : x.graph->apply1(SumTo{.shape = shape}, {x});
}

static_assert(Operator<SumTo> && Differentiable<SumTo>);

}  // namespace ridge
