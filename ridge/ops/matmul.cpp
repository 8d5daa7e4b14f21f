#include "ridge/ops/matmul.h"

#include "ridge/ops/check.h"
#include "ridge/ops/dot.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/op.h"
#include "ridge/ops/unary.h"

namespace ridge {
namespace {

struct Extents {
  std::int64_t batch, m, n, k;
};

Extents extents(const MatMul& op, Types in, const Shape& out) {
  return {out.rows(2), out[-2], out[-1], op.trans_a ? in[0].shape[-2] : in[0].shape[-1]};
}

}  // namespace

std::vector<TensorType> MatMul::infer(Types in) const {
  if (in.size() != 3) check_count(name, in, 2);
  check_min_rank(name, in, 0, 2);
  check_dtype(name, in, 0);
  check_same_dtype(name, in, 0, 1);
  const DType result = out.value_or(in[0].dtype);
  if (result != in[0].dtype && result != DType::f32)
    throw ShapeError("matmul: the product of {} is in their dtype or in f32, not in {}",
                     list_of(in), name_of(result));
  const Shape &a = in[0].shape, &b = in[1].shape;
  if (a.rank() != b.rank() || a.rows(2) != b.rows(2))
    throw ShapeError("matmul: the batches of {} differ", list_of(in));
  const std::int64_t m = trans_a ? a[-1] : a[-2], ka = trans_a ? a[-2] : a[-1];
  const std::int64_t kb = trans_b ? b[-1] : b[-2], n = trans_b ? b[-2] : b[-1];
  if (ka != kb)
    throw ShapeError("matmul: inner extents {} and {} differ: {}{}, {}{}", ka, kb,
                     in[0].to_string(), trans_a ? " transposed" : "", in[1].to_string(),
                     trans_b ? " transposed" : "");
  std::vector<std::int64_t> dims(a.dims().begin(), a.dims().end());
  dims[dims.size() - 2] = m;
  dims[dims.size() - 1] = n;
  const TensorType c{result, Shape(dims)};
  if (const Operands at = operands(in.size()); at.sum < at.count) {
    check_dtype(name, in, at.sum, f32_only);
    check_type(name, in, at.sum, c);
  }
  return {c};
}

std::optional<Alias> MatMul::aliased_input(std::uint32_t, Types in) const {
  const Operands at = operands(in.size());
  return at.sum < at.count ? std::optional(Alias{static_cast<std::uint32_t>(at.sum)})
                           : std::nullopt;
}

// A sum is none of their operands: who knows them counts the product all the same.
std::string_view MatMul::aten_name(Types in) const {
  return in[0].shape.rank() > 2 ? "aten::bmm" : "aten::mm";
}

Cost MatMul::cost(Types in, Types results) const {
  const auto [batch, m, n, k] = extents(*this, in, results[0].shape);
  Cost cost = streaming_cost(2 * batch * m * n * k, in, results);
  cost.macs = batch * m * n * k;
  if (causal == CausalPart::none) return cost;
  // The masked extents are the keys, and the queries in whole runs of as many positions.
  std::int64_t keys = 0, queries = 0, other = 0;
  if (causal == CausalPart::output) {
    keys = n, queries = m, other = k;
  } else {
    keys = in[0].shape[-1], queries = in[0].shape[-2], other = n;
  }
  const std::int64_t pairs = queries / keys * (keys * (keys + 1) / 2);
  cost.causal_flops = 2 * batch * pairs * other;
  return cost;
}

std::vector<Value> MatMul::grad(GradBuilder& b) const {
  // With C = A B: dA = dC B^T and dB = A^T dC; stored transposes move to the other side. If C is
  // causal so is dC, which then stands where a causal left operand stands, and the other way round.
  const Value x = b.input(0), y = b.input(1), g = cast(b.grad(), x.dtype());
  const bool output_causal = causal == CausalPart::output;
  if (causal != CausalPart::none && (trans_a || (output_causal && !trans_b)))
    throw UsageError("matmul: no gradient for a causal product of transposed queries");
  const CausalPart of_x = output_causal               ? CausalPart::lhs
                          : causal == CausalPart::lhs ? CausalPart::output
                                                      : CausalPart::none;
  const CausalPart of_y = causal == CausalPart::none ? CausalPart::none : CausalPart::lhs;
  Value dx, dy;
  // The right one first: it is often a weight's, after which x, an activation, is needed no more
  // and leaves its memory to the other.
  if (b.needs(1))
    dy = trans_b ? matmul(g, x, {.trans_a = true, .trans_b = trans_a, .causal = of_y})
                 : matmul(x, g, {.trans_a = !trans_a, .trans_b = false, .causal = of_y});
  if (b.needs(0))
    dx = trans_a ? matmul(y, g, {.trans_a = trans_b, .trans_b = true, .causal = of_x})
                 : matmul(g, y, {.trans_a = false, .trans_b = !trans_b, .causal = of_x});
  if (b.input_count() == 3) return {dx, dy, b.grad()};
  return {dx, dy};
}

bool MatMul::by_rows(Types in) const {
  return in.size() == 2 && !trans_a && causal == CausalPart::none && in[0].shape.rank() == 2;
}

namespace {

// The rows of a matrix [rows, columns] one after the other, whether it is stored so or transposed.
std::vector<double> rows_of(const double* x, std::int64_t rows, std::int64_t columns,
                            bool transposed) {
  std::vector<double> out(x, x + rows * columns);
  if (!transposed) return out;
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i)
      out[static_cast<std::size_t>(i * columns + j)] = x[j * rows + i];
  return out;
}

}  // namespace

void MatMul::reference(ReferenceCall& call) const {
  const auto &a = call.inputs[0], &b = call.inputs[1], &c = call.outputs[0];
  const Operands at = operands(call.inputs.size());
  const std::int64_t m = c.shape[-2], n = c.shape[-1];
  const std::int64_t k = trans_a ? a.shape[-2] : a.shape[-1];
  for (std::int64_t batch = 0; batch < c.shape.rows(2); ++batch) {
    const std::vector<double> rows = rows_of(&a[batch * m * k], m, k, trans_a);
    const std::vector<double> columns = rows_of(&b[batch * k * n], n, k, !trans_b);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t place = batch * m * n + i * n + j;
        c[place] = dot(&rows[static_cast<std::size_t>(i * k)],
                       &columns[static_cast<std::size_t>(j * k)], k);
        if (at.sum < at.count) c[place] += call.inputs[at.sum][place];
      }
  }
}

std::vector<Sample<MatMul>> MatMul::samples() {
  auto f32 = [](Shape shape) { return SampleInput{{DType::f32, shape}}; };
  std::vector<Sample<MatMul>> samples;
  // Every pair of layouts at odd, tiny and ordinary extents.
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const auto& [batch, m, n, k] : {std::array<std::int64_t, 4>{1, 1, 1, 1},
                                           {1, 7, 13, 5},
                                           {3, 17, 1, 31},
                                           {2, 1, 33, 9},
                                           {1, 64, 48, 80}})
        samples.push_back({{.trans_a = ta, .trans_b = tb},
                           {f32(ta ? Shape{batch, k, m} : Shape{batch, m, k}),
                            f32(tb ? Shape{batch, n, k} : Shape{batch, k, n})}});
  // More than one tile in both directions, with short tiles at the edges.
  samples.push_back({{.trans_b = true}, {f32({300, 40}), f32({275, 40})}});
  samples.push_back({{.trans_a = true}, {f32({270, 260}), f32({270, 290})}});
  // One row and one column more than the largest tile.
  samples.push_back({{.trans_a = true}, {f32({9, 257}), f32({9, 513})}});
  // f32 whatever the operands are.
  for (const bool ta : {false, true})
    samples.push_back({{.trans_a = ta, .trans_b = !ta, .out = DType::f32},
                       {f32(ta ? Shape{2, 19, 35} : Shape{2, 35, 19}),
                        f32(ta ? Shape{2, 19, 23} : Shape{2, 23, 19})}});
  samples.push_back({{.trans_a = true, .out = DType::f32}, {f32({70, 258}), f32({70, 300})}});
  // Added to a sum.
  for (const bool ta : {false, true})
    samples.push_back({{.trans_a = ta, .trans_b = !ta, .out = DType::f32},
                       {f32(ta ? Shape{2, 37, 21} : Shape{2, 21, 37}),
                        f32(ta ? Shape{2, 37, 50} : Shape{2, 50, 37}), f32({2, 21, 50})}});
  samples.push_back(
      {{.trans_a = true, .out = DType::f32}, {f32({70, 258}), f32({70, 300}), f32({258, 300})}});
  samples.push_back(
      {{.trans_b = true, .causal = CausalPart::output}, {f32({2, 10, 4}), f32({2, 5, 4})}});
  return samples;
}

Value matmul(Value a, Value b, MatMul op) { return a.graph->apply1(op, {a, b}); }

Value project(Value x, Value weight) {
  const Shape& shape = x.shape();
  const Value rows = reshape(x, {shape.rows(), shape[-1]});
  const Value y = matmul(rows, weight, {.trans_b = true});
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.back() = weight.shape()[0];
  return reshape(y, Shape(dims));
}

static_assert(Operator<MatMul> && Differentiable<MatMul> && Aliasing<MatMul>);

}  // namespace ridge
