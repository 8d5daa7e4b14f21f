#include "ridge/ops/linear.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/dot.h"

namespace ridge {

LinearExtents linear_extents(Types in) {
  return {in[0].shape.rows(), in[1].shape[0], in[1].shape[1]};
}

std::vector<TensorType> Linear::infer(Types in) const {
  check_count(name, in, operands().count);
  check_min_rank(name, in, 0, 1);
  check_rank(name, in, 1, 2);
  check_dtype(name, in, 0);
  check_same_dtype(name, in, 0, 1);
  const Shape &x = in[0].shape, &weight = in[1].shape;
  if (x[-1] != weight[1])
    throw ShapeError("{}: inner extents {} and {} differ: {}", name, x[-1], weight[1], list_of(in));
  std::vector<std::int64_t> dims(x.dims().begin(), x.dims().end());
  dims.back() = weight[0];
  const TensorType y{in[0].dtype, Shape(dims)};
  if (bias) check_type(name, in, operands().bias, {y.dtype, {weight[0]}});
  if (residual) check_type(name, in, operands().residual, y);
  return {y};
}

Cost Linear::cost(Types in, Types out) const {
  const auto [m, n, k] = linear_extents(in);
  const std::int64_t each = bias + residual + element_function(epilogue).flops;
  Cost cost = streaming_cost(2 * m * n * k + each * m * n, in, out);
  cost.macs = m * n * k;
  return cost;
}

std::string_view Linear::aten_name(Types) const {
  return residual || epilogue != Epilogue::none ? "" : "aten::linear";
}

void Linear::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &weight = call.inputs[1], &y = call.outputs[0];
  const std::int64_t m = x.shape.rows(), n = weight.shape[0], k = weight.shape[1];
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = bias ? call.inputs[operands().bias][j] : 0.0;
      if (residual) sum += call.inputs[operands().residual][i * n + j];
      sum += dot(&x[i * k], &weight[j * k], k);
      y[i * n + j] = element_function(epilogue).value(sum);
    }
}

std::vector<Sample<Linear>> Linear::samples() {
  std::vector<Sample<Linear>> samples;
  const auto add = [&](const Shape& x, std::int64_t n, Linear op) {
    // Such that results are of the order of 1, where activations bend.
    const double range = 2.0 / std::sqrt(static_cast<double>(x[-1]));
    std::vector<std::int64_t> dims(x.dims().begin(), x.dims().end());
    dims.back() = n;
    Sample<Linear> sample{op, {{{DType::f32, x}}, {{DType::f32, {n, x[-1]}}, -range, range}}};
    if (op.bias) sample.inputs.push_back({{DType::f32, {n}}});
    if (op.residual) sample.inputs.push_back({{DType::f32, Shape(dims)}});
    samples.push_back(std::move(sample));
  };
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu, Epilogue::relu6, Epilogue::silu,
                                  Epilogue::hard_swish, Epilogue::gelu}) {
    add({2, 70, 72}, 136, {.bias = true, .epilogue = epilogue});
    add({3, 5, 9}, 7, {.bias = true, .epilogue = epilogue});
  }
  for (const bool bias : {false, true})
    for (const bool residual : {false, true}) {
      add({1, 1}, 1, {bias, residual});
      add({33, 17}, 130, {bias, residual});
      add({300, 200}, 264, {bias, residual});
      add({2, 3, 4, 24}, 48, {bias, residual, Epilogue::relu});
    }
  // More than one block of k, and a tile's edge in both directions.
  add({130, 1032}, 40, {true, true, Epilogue::gelu});
  add({7}, 5, {.bias = true});
  return samples;
}

static_assert(Operator<Linear>);

}  // namespace ridge
