#include "ridge/ops/embedding.h"

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Embedding::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0);
  if (in[0].shape.rank() != 2)
    throw ShapeError("embedding: the table has 2 dimensions, not {}: {}", in[0].shape.rank(),
                     list_of(in));
  check_type(name, in, 1, {DType::i32, in[1].shape});
  const auto ids = in[1].shape.dims();
  std::vector<std::int64_t> dims(ids.begin(), ids.end());
  dims.push_back(in[0].shape[1]);
  return {{in[0].dtype, Shape(dims)}};
}

Cost Embedding::cost(Types in, Types out) const {
  // Only one row of the table is read for each id.
  Cost cost = streaming_cost(0, in, out);
  cost.bytes_read = static_cast<std::int64_t>(in[1].bytes() + out[0].bytes());
  return cost;
}

std::vector<Value> Embedding::grad(GradBuilder& b) const {
  const EmbeddingGrad op{.rows = b.input(0).shape()[0]};
  return {b.graph().apply1(op, {b.grad(), b.input(1)})};
}

void Embedding::reference(ReferenceCall& call) const {
  const auto &table = call.inputs[0], &ids = call.inputs[1], &y = call.outputs[0];
  const std::int64_t columns = table.shape[1];
  for (std::int64_t i = 0; i < ids.shape.numel(); ++i)
    for (std::int64_t c = 0; c < columns; ++c)
      y[i * columns + c] = table[static_cast<std::int64_t>(ids[i]) * columns + c];
}

std::vector<Sample<Embedding>> Embedding::samples() {
  auto sample = [](std::int64_t rows, std::int64_t columns, Shape ids) {
    return Sample<Embedding>{
        {}, {{{DType::f32, {rows, columns}}}, {{DType::i32, ids}, 0.0, static_cast<double>(rows)}}};
  };
  return {sample(1, 1, {1}), sample(7, 5, {}), sample(3, 13, {11}), sample(50, 33, {2, 3, 7}),
          sample(20, 64, {4, 100})};
}

std::vector<TensorType> EmbeddingGrad::infer(Types in) const {
  check_count(name, in, 2);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0);
  const auto dims = in[0].shape.dims();
  check_type(name, in, 1, {DType::i32, Shape(dims.first(dims.size() - 1))});
  return {{in[0].dtype, {rows, in[0].shape[-1]}}};
}

Cost EmbeddingGrad::cost(Types in, Types out) const {
  // Per element of dy: one sum.
  return streaming_cost(in[0].numel(), in, out);
}

void EmbeddingGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &ids = call.inputs[1], &dtable = call.outputs[0];
  const std::int64_t columns = dy.shape[-1];
  for (std::int64_t i = 0; i < rows * columns; ++i) dtable[i] = 0;
  for (std::int64_t i = 0; i < ids.shape.numel(); ++i)
    for (std::int64_t c = 0; c < columns; ++c)
      dtable[static_cast<std::int64_t>(ids[i]) * columns + c] += dy[i * columns + c];
}

std::vector<Sample<EmbeddingGrad>> EmbeddingGrad::samples() {
  auto sample = [](std::int64_t rows, Shape dy) {
    const TensorType ids{DType::i32, Shape(dy.dims().first(dy.rank() - 1))};
    return Sample<EmbeddingGrad>{{.rows = rows},
                                 {{{DType::f32, dy}}, {ids, 0.0, static_cast<double>(rows)}}};
  };
  // With more ids than rows, fewer, and more columns than the kernel sums at a time.
  return {sample(1, {1, 1}),          sample(7, {5}),           sample(3, {11, 13}),
          sample(500, {2, 3, 7, 33}), sample(20, {4, 100, 64}), sample(5, {9, 700})};
}

std::vector<TensorType> IndexAdd::infer(Types in) const {
  constexpr Operands at = operands();
  check_count(name, in, at.count);
  check_rank(name, in, at.table, 2);
  check_dtype(name, in, at.table);
  check_rank(name, in, at.ids, 1);
  const TensorType &table = in[at.table], &ids = in[at.ids];
  check_type(name, in, at.ids, {DType::i32, ids.shape});
  check_type(name, in, at.rows, {table.dtype, {ids.numel(), table.shape[1]}});
  return {table};
}

Cost IndexAdd::cost(Types in, Types) const {
  // Only one row of the table is read and written for each id.
  const TensorType &ids = in[operands().ids], &added = in[operands().rows];
  const auto rows = static_cast<std::int64_t>(added.bytes());
  return {.flops = added.numel(),
          .bytes_read = static_cast<std::int64_t>(ids.bytes()) + 2 * rows,
          .bytes_written = rows};
}

void IndexAdd::reference(ReferenceCall& call) const {
  constexpr Operands at = operands();
  const auto &table = call.inputs[at.table], &ids = call.inputs[at.ids],
             &rows = call.inputs[at.rows];
  const auto& y = call.outputs[0];
  const std::int64_t columns = table.shape[1];
  for (std::int64_t i = 0; i < table.shape.numel(); ++i) y[i] = table[i];
  for (std::int64_t i = 0; i < ids.shape.numel(); ++i)
    for (std::int64_t c = 0; c < columns; ++c)
      y[static_cast<std::int64_t>(ids[i]) * columns + c] += rows[i * columns + c];
}

std::optional<Alias> IndexAdd::aliased_input(std::uint32_t, Types) const {
  return Alias{operands().table};
}

std::vector<Sample<IndexAdd>> IndexAdd::samples() {
  auto sample = [](std::int64_t rows, std::int64_t columns, std::int64_t ids) {
    return Sample<IndexAdd>{{},
                            {{{DType::f32, {rows, columns}}},
                             {{DType::i32, {ids}}, 0.0, static_cast<double>(rows)},
                             {{DType::f32, {ids, columns}}}}};
  };
  return {sample(1, 1, 1),    sample(7, 5, 3),      sample(3, 13, 40),
          sample(40, 700, 9), sample(900, 64, 333), sample(5000, 8, 20'000)};
}

Value embedding(Value table, Value ids) { return table.graph->apply1(Embedding{}, {table, ids}); }

static_assert(Operator<Embedding> && Differentiable<Embedding>);
static_assert(Operator<EmbeddingGrad>);
static_assert(Operator<IndexAdd> && Aliasing<IndexAdd>);

}  // namespace ridge
