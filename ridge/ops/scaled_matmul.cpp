#include "ridge/ops/scaled_matmul.h"

#include <array>

#include "ridge/ops/check.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

constexpr DType float8[] = {DType::f8e4m3, DType::f8e5m2};

// Without the scales.
MatMul product_of(const ScaledMatMul& op) { return {.trans_a = op.trans_a, .trans_b = op.trans_b}; }

void check_float8(const ScaledMatMul& op, Types in) {
  for (const std::size_t i : {0, 1}) check_dtype(op.name, in, i, float8);
  if (in[0].dtype == DType::f8e5m2 && in[1].dtype == DType::f8e5m2)
    throw ShapeError("{}: at most one operand may be f8e5m2: {}", op.name, list_of(in));
  if (op.trans_a || !op.trans_b)
    throw ShapeError("{}: operands of 8 bits lie with the summed dimension innermost", op.name);
}

}  // namespace

std::vector<TensorType> ScaledMatMul::infer(Types in) const {
  const Operands at = operands(in.size());
  check_count(name, in, at.count);
  const bool is_f16 = in[0].dtype == DType::f16;
  if (is_f16)
    check_same_dtype(name, in, 0, 1);
  else
    check_float8(*this, in);
  for (const std::size_t i : {at.scale_a, at.scale_b}) check_type(name, in, i, {DType::f32, {}});
  if (out != DType::f32 && (is_f16 || out != DType::bf16))
    throw ShapeError("{}: the product of {} is in {}, not in {}", name, list_of(in),
                     is_f16 ? "f32" : "f32 or bf16", name_of(out));
  // The rule for extents is that of any product.
  const TensorType operands[] = {{DType::f32, in[0].shape}, {DType::f32, in[1].shape}};
  const TensorType c{out, product_of(*this).infer(operands)[0].shape};
  if (at.sum < at.count) {
    check_dtype(name, in, at.sum, f32_only);
    check_type(name, in, at.sum, c);
  }
  return {c};
}

std::optional<Alias> ScaledMatMul::aliased_input(std::uint32_t, Types in) const {
  const Operands at = operands(in.size());
  return at.sum < at.count ? std::optional(Alias{static_cast<std::uint32_t>(at.sum)})
                           : std::nullopt;
}

Cost ScaledMatMul::cost(Types in, Types results) const {
  Cost cost = product_of(*this).cost(in.first(2), results);
  for (const TensorType& more : in.subspan(2))
    cost.bytes_read += static_cast<std::int64_t>(more.bytes());
  return cost;
}

void ScaledMatMul::reference(ReferenceCall& call) const {
  ReferenceCall unscaled{call.inputs.first(2), call.outputs};
  product_of(*this).reference(unscaled);
  const ReferenceTensor& c = call.outputs[0];
  const Operands at = operands(call.inputs.size());
  for (std::size_t i = 0; i < c.data.size(); ++i) {
    c.data[i] *= call.inputs[at.scale_a][0] * call.inputs[at.scale_b][0];
    if (at.sum < at.count) c.data[i] += call.inputs[at.sum].data[i];
  }
}

std::vector<Sample<ScaledMatMul>> ScaledMatMul::samples() {
  using Extents = std::array<std::int64_t, 3>;  // m, n, k
  std::vector<Sample<ScaledMatMul>> samples;
  const auto add = [&](const ScaledMatMul& op, DType a, DType b, const Extents& extents) {
    const auto [m, n, k] = extents;
    samples.push_back({op,
                       {{{a, op.trans_a ? Shape{k, m} : Shape{m, k}}},
                        {{b, op.trans_b ? Shape{n, k} : Shape{k, n}}},
                        {{DType::f32, {}}, 0.3, 0.7},
                        {{DType::f32, {}}, 0.6, 1.4}}});
  };
  for (const DType out : {DType::f32, DType::bf16})
    for (const auto& [a, b] : {std::pair{DType::f8e4m3, DType::f8e4m3},
                               {DType::f8e5m2, DType::f8e4m3},
                               {DType::f8e4m3, DType::f8e5m2}})
      for (const Extents& extents :
           {Extents{16, 16, 16}, {48, 160, 32}, {144, 16, 80}, {272, 304, 144}})
        add({.out = out}, a, b, extents);
  for (const auto& [trans_a, trans_b] :
       {std::pair{false, true}, {false, false}, {true, false}, {true, true}})
    for (const Extents& extents : {Extents{8, 8, 8}, {48, 160, 32}, {136, 24, 72}, {272, 304, 136}})
      for (const bool adds : {false, true}) {
        add({.out = DType::f32, .trans_a = trans_a, .trans_b = trans_b}, DType::f16, DType::f16,
            extents);
        if (adds)
          samples.back().inputs.push_back({{DType::f32, {extents[0], extents[1]}}, -3.0, 3.0});
      }
  // Rows of results that begin anywhere.
  add({.out = DType::f32}, DType::f16, DType::f16, {13, 37, 24});
  return samples;
}

static_assert(Operator<ScaledMatMul>);

}  // namespace ridge
