#include "ridge/ops/fill.h"

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Fill::infer(Types in) const {
  check_count(name, in, 0);
  if (!is_floating(type.dtype))
    throw ShapeError("fill does not make {}: only floating dtypes", type.to_string());
  return {type};
}

Cost Fill::cost(Types in, Types out) const { return streaming_cost(0, in, out); }

void Fill::reference(ReferenceCall& call) const {
  const auto& y = call.outputs[0];
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) y[i] = value;
}

std::vector<Sample<Fill>> Fill::samples() {
  std::vector<Sample<Fill>> samples;
  for (const DType dtype : f32_and_16_bit)
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{130, 257}})
      samples.push_back({{.type = {dtype, shape}, .value = 1.5f}, {}});
  return samples;
}

Value fill(Graph& graph, const TensorType& type, float value) {
  return graph.apply1(Fill{.type = type, .value = value}, {});
}

static_assert(Operator<Fill>);

}  // namespace ridge
