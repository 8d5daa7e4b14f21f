#include "ridge/ops/elementwise.h"

namespace ridge {

std::vector<TensorType> infer_same(std::string_view op, Types in, std::size_t count) {
  check_count(op, in, count);
  check_dtype(op, in, 0);
  for (std::size_t i = 1; i < count; ++i) check_same_type(op, in, 0, i);
  return {in[0]};
}

void apply_value(const ElementFunction& f, ReferenceCall& call) {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) y[i] = f.value(x[i]);
}

void apply_derivative(const ElementFunction& f, ReferenceCall& call) {
  const auto &dy = call.inputs[0], &x = call.inputs[1], &dx = call.outputs[0];
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) dx[i] = dy[i] * f.derivative(x[i]);
}

std::vector<Shape> elementwise_shapes() {
  return {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}};
}

}  // namespace ridge
