#include "ridge/ops/scaled_matmul.h"

#include "ridge/ops/check.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

constexpr DType float8[] = {DType::f8e4m3, DType::f8e5m2};
constexpr MatMul product{.trans_b = true};  // without the scales

}  // namespace

std::vector<TensorType> ScaledMatMul::infer(Types in) const {
  check_count(name, in, 4);
  for (const std::size_t i : {0, 1}) check_dtype(name, in, i, float8);
  if (in[0].dtype == DType::f8e5m2 && in[1].dtype == DType::f8e5m2)
    throw ShapeError("{}: at most one operand may be f8e5m2: {}", name, list_of(in));
  for (const std::size_t i : {2, 3}) check_type(name, in, i, {DType::f32, {}});
  if (out != DType::f32 && out != DType::bf16)
    throw ShapeError("{}: the product of {} is in f32 or bf16, not in {}", name, list_of(in),
                     name_of(out));
  // The rule for extents is that of any product.
  const TensorType operands[] = {{DType::f32, in[0].shape}, {DType::f32, in[1].shape}};
  return {{out, product.infer(operands)[0].shape}};
}

Cost ScaledMatMul::cost(Types in, Types results) const {
  Cost cost = product.cost(in.first(2), results);
  cost.bytes_read += static_cast<std::int64_t>(in[2].bytes() + in[3].bytes());
  return cost;
}

void ScaledMatMul::reference(ReferenceCall& call) const {
  ReferenceCall unscaled{call.inputs.first(2), call.outputs};
  product.reference(unscaled);
  for (double& c : call.outputs[0].data) c *= call.inputs[2][0] * call.inputs[3][0];
}

std::vector<Sample<ScaledMatMul>> ScaledMatMul::samples() {
  std::vector<Sample<ScaledMatMul>> samples;
  for (const DType out : {DType::f32, DType::bf16})
    for (const auto& [a, b] : {std::pair{DType::f8e4m3, DType::f8e4m3},
                               {DType::f8e5m2, DType::f8e4m3},
                               {DType::f8e4m3, DType::f8e5m2}})
      for (const auto& [m, n, k] :
           {std::array<std::int64_t, 3>{16, 16, 16}, {48, 160, 32}, {144, 16, 80}, {272, 304, 144}})
        samples.push_back({{.out = out},
                           {{{a, {m, k}}},
                            {{b, {n, k}}},
                            {{DType::f32, {}}, 0.3, 0.7},
                            {{DType::f32, {}}, 3.0, 7.0}}});
  return samples;
}

static_assert(Operator<ScaledMatMul>);

}  // namespace ridge
