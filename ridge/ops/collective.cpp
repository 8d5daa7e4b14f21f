#include "ridge/ops/collective.h"

#include "ridge/base/part.h"
#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

template <class Op>
void check_rank(const Op& op) {
  if (op.ranks < 1 || op.rank < 0 || op.rank >= op.ranks)
    throw ShapeError("{}: there is no rank {} of {}", Op::name, op.rank, op.ranks);
}

template <class Op>
Part part_of_rank(const Op& op, const TensorType& whole) {
  return part_of(whole.numel(), op.rank, op.ranks);
}

// ShapeError where some rank would have none.
template <class Op>
TensorType part_type(const Op& op, const TensorType& whole) {
  if (part_of(whole.numel(), op.ranks - 1, op.ranks).count == 0)
    throw ShapeError("{}: the {} elements of {} give no part for each of {} ranks", Op::name,
                     whole.numel(), whole.to_string(), op.ranks);
  return {whole.dtype, {part_of_rank(op, whole).count}};
}

std::int64_t elements_of(Types types) {
  std::int64_t elements = 0;
  for (const TensorType& type : types) elements += type.numel();
  return elements;
}

}  // namespace

std::vector<TensorType> AllReduce::infer(Types in) const {
  if (in.empty()) throw ShapeError("{} takes at least 1 operand", name);
  if (ranks < 1) throw ShapeError("{}: there is at least 1 rank, not {}", name, ranks);
  for (std::size_t i = 0; i < in.size(); ++i) check_dtype(name, in, i);
  return {in.begin(), in.end()};
}

// Of an element ranks - 1 additions, which the ranks share, and a product for the mean.
Cost AllReduce::cost(Types in, Types out) const {
  if (ranks == 1) return {};
  const std::int64_t elements = elements_of(in);
  return streaming_cost((ranks - 1) * elements / ranks + (mean ? elements : 0), in, out);
}

// The other ranks' parts, to be summed by these; then its own sum to each of them.
std::int64_t AllReduce::sent_bytes(Types in) const {
  return 2 * ReduceScatter{.ranks = ranks}.sent_bytes(in);
}

std::optional<Alias> AllReduce::aliased_input(std::uint32_t output, Types) const {
  return Alias{.input = output};
}

void AllReduce::reference(ReferenceCall& call) const { reference_over({&call, 1}); }

void AllReduce::reference_over(std::span<ReferenceCall> calls) const {
  const std::span<const ReferenceTensor> tensors = calls.front().inputs;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    for (std::int64_t i = 0; i < tensors[t].shape.numel(); ++i) {
      double sum = 0;
      for (const ReferenceCall& call : calls) sum += call.inputs[t][i];
      for (ReferenceCall& call : calls)
        call.outputs[t][i] = mean ? sum / static_cast<double>(calls.size()) : sum;
    }
}

std::vector<Sample<AllReduce>> AllReduce::samples() {
  std::vector<Sample<AllReduce>> samples;
  for (const bool mean : {false, true}) {
    samples.push_back({{.mean = mean}, {{{DType::f32, {}}}}});
    samples.push_back({{.mean = mean}, {{{DType::f32, {3, 20011}}}}});
    samples.push_back(
        {{.mean = mean}, {{{DType::f32, {7, 5}}}, {{DType::f32, {1}}}, {{DType::f32, {64, 33}}}}});
  }
  return samples;
}

std::vector<Value> all_reduce(std::span<const Value> x, const AllReduce& op) {
  return x.front().graph->apply(op, x);
}

std::vector<TensorType> ReduceScatter::infer(Types in) const {
  if (in.empty()) throw ShapeError("{} takes at least 1 operand", name);
  check_rank(*this);
  std::vector<TensorType> parts;
  for (std::size_t i = 0; i < in.size(); ++i) {
    check_dtype(name, in, i);
    parts.push_back(part_type(*this, in[i]));
  }
  return parts;
}

// Each element of the part takes ranks - 1 additions, and a product for the mean.
Cost ReduceScatter::cost(Types in, Types out) const {
  return streaming_cost((ranks - 1 + (mean ? 1 : 0)) * elements_of(out), in, out);
}

std::int64_t ReduceScatter::sent_bytes(Types in) const {
  std::int64_t bytes = 0;
  // A scalar has no parts, and is sent all the same.
  for (const TensorType& type : in)
    bytes += ((ranks - 1) * type.numel() + ranks - 1) / ranks *
             static_cast<std::int64_t>(size_of(type.dtype));
  return bytes;
}

void ReduceScatter::reference(ReferenceCall& call) const { reference_over({&call, 1}); }

void ReduceScatter::reference_over(std::span<ReferenceCall> calls) const {
  const auto count = static_cast<std::int64_t>(calls.size());
  for (std::size_t t = 0; t < calls.front().inputs.size(); ++t)
    for (std::size_t r = 0; r < calls.size(); ++r) {
      const std::int64_t n = calls[r].inputs[t].shape.numel();
      const Part part = part_of(n, static_cast<std::int64_t>(r), count);
      for (std::int64_t i = 0; i < part.count; ++i) {
        double sum = 0;
        for (const ReferenceCall& call : calls) sum += call.inputs[t][part.first + i];
        calls[r].outputs[t][i] = mean ? sum / static_cast<double>(calls.size()) : sum;
      }
    }
}

std::vector<Sample<ReduceScatter>> ReduceScatter::samples() {
  std::vector<Sample<ReduceScatter>> samples;
  for (const bool mean : {false, true}) {
    samples.push_back({{.mean = mean}, {{{DType::f32, {}}}}});
    samples.push_back({{.mean = mean}, {{{DType::f32, {3, 20011}}}}});
    samples.push_back({{.mean = mean}, {{{DType::f32, {7, 5}}}, {{DType::f32, {64, 33}}}}});
  }
  return samples;
}

std::vector<TensorType> AllGather::infer(Types in) const {
  check_rank(*this);
  if (rounded_to && (shapes.empty() || !is_16_bit(*rounded_to)))
    throw ShapeError("{} rounds parts to 16 bits, not {}, and gives tensors of their own", name,
                     name_of(*rounded_to));
  std::vector<TensorType> wholes;
  if (shapes.empty()) {
    if (in.empty() || in.size() % 2 != 0)
      throw ShapeError("{} takes pairs of a part and its tensor, not {}", name, list_of(in));
    for (std::size_t i = 1; i < in.size(); i += 2) wholes.push_back(in[i]);
  } else {
    check_count(name, in, shapes.size());
    for (std::size_t i = 0; i < in.size(); ++i) wholes.push_back({sent_dtype(in[i]), shapes[i]});
  }
  for (std::size_t t = 0; t < wholes.size(); ++t) {
    const std::size_t i = operands_each() * t;
    check_dtype(name, in, i, rounded_to ? f32_and_16_bit : dtypes);
    TensorType part = part_type(*this, wholes[t]);
    if (rounded_to) part.dtype = in[i].dtype;
    check_type(name, in, i, part);
  }
  return wholes;
}

// Reads its parts, and writes all.
Cost AllGather::cost(Types in, Types out) const {
  Cost cost;
  for (std::size_t i = 0; i < out.size(); ++i) {
    cost.bytes_read += static_cast<std::int64_t>(in[operands_each() * i].bytes());
    cost.bytes_written += static_cast<std::int64_t>(out[i].bytes());
  }
  return cost;
}

std::optional<Alias> AllGather::aliased_input(std::uint32_t output, Types) const {
  return shapes.empty() ? std::optional(Alias{.input = 2 * output + 1}) : std::nullopt;
}

std::int64_t AllGather::sent_bytes(Types in) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < in.size(); i += operands_each())
    bytes += in[i].numel() * static_cast<std::int64_t>(size_of(sent_dtype(in[i])));
  return (ranks - 1) * bytes;
}

void AllGather::reference(ReferenceCall& call) const { reference_over({&call, 1}); }

void AllGather::reference_over(std::span<ReferenceCall> calls) const {
  const auto count = static_cast<std::int64_t>(calls.size());
  for (std::size_t t = 0; t < calls.front().outputs.size(); ++t)
    for (const ReferenceCall& call : calls)
      for (std::size_t r = 0; r < calls.size(); ++r) {
        const std::int64_t n = call.outputs[t].shape.numel();
        const Part part = part_of(n, static_cast<std::int64_t>(r), count);
        for (std::int64_t i = 0; i < part.count; ++i)
          call.outputs[t][part.first + i] = calls[r].inputs[operands_each() * t][i];
      }
}

std::vector<Sample<AllGather>> AllGather::samples() {
  std::vector<Sample<AllGather>> samples;
  samples.push_back({{}, {{{DType::f32, {1}}}, {{DType::f32, {}}}}});
  samples.push_back({{}, {{{DType::f32, {60033}}}, {{DType::f32, {3, 20011}}}}});
  samples.push_back({{},
                     {{{DType::f32, {35}}},
                      {{DType::f32, {7, 5}}},
                      {{DType::f32, {2112}}},
                      {{DType::f32, {64, 33}}}}});
  samples.push_back({{.shapes = {{3, 20011}}}, {{{DType::f32, {60033}}}}});
  samples.push_back(
      {{.shapes = {{7, 5}, {64, 33}}}, {{{DType::f32, {35}}}, {{DType::f32, {2112}}}}});
  for (const DType rounded_to : {DType::bf16, DType::f16})
    samples.push_back({{.shapes = {{7, 5}, {3, 20011}}, .rounded_to = rounded_to},
                       {{{DType::f32, {35}}}, {{DType::f32, {60033}}}}});
  return samples;
}

static_assert(Operator<AllReduce> && Aliasing<AllReduce>);
static_assert(Operator<ReduceScatter>);
static_assert(Operator<AllGather> && Aliasing<AllGather>);

}  // namespace ridge
