#include "ridge/ops/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

using Order = std::array<std::uint8_t, Shape::max_rank>;

// A permutation of 0 .. rank - 1, followed by zeros.
bool is_order(const Order& order, std::size_t rank) {
  Order identity{};
  std::iota(identity.begin(), identity.begin() + rank, std::uint8_t{0});
  return std::is_permutation(order.begin(), order.begin() + rank, identity.begin()) &&
         std::all_of(order.begin() + rank, order.end(), [](auto entry) { return entry == 0; });
}

}  // namespace

std::vector<TensorType> Reshape::infer(Types in) const {
  check_count(name, in, 1);
  if (shape.numel() != in[0].numel())
    throw ShapeError("reshape: {} has {} elements, but {} has {}", in[0].to_string(), in[0].numel(),
                     shape.to_string(), shape.numel());
  return {{in[0].dtype, shape}};
}

Cost Reshape::cost(Types, Types) const { return {}; }

std::vector<Value> Reshape::grad(GradBuilder& b) const {
  return {reshape(b.grad(), b.input(0).shape())};
}

void Reshape::reference(ReferenceCall& call) const {
  std::ranges::copy(call.inputs[0].data, call.outputs[0].data.begin());
}

std::vector<Sample<Reshape>> Reshape::samples() {
  auto sample = [](const Shape& from, const Shape& to) {
    return Sample<Reshape>{{.shape = to}, {{{DType::f32, from}}}};
  };
  return {sample({}, {1, 1}), sample({2, 3, 35}, {6, 5, 7}), sample({5, 7}, {35})};
}

std::optional<Alias> Reshape::aliased_input(std::uint32_t, Types) const {
  return Alias{.input = 0};
}

std::vector<TensorType> Slice::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  const Shape& shape = in[0].shape;
  if (shape.rank() == 0 || begin < 0 || rows < 1 || begin > shape[0] - rows)
    throw ShapeError("slice: {} has no {} rows from row {} on", in[0].to_string(), rows, begin);
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[0] = rows;
  return {{in[0].dtype, Shape(dims)}};
}

Cost Slice::cost(Types, Types) const { return {}; }

void Slice::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const std::int64_t row = x.shape.numel() / x.shape[0];
  std::copy_n(x.data.begin() + begin * row, rows * row, y.data.begin());
}

std::vector<Sample<Slice>> Slice::samples() {
  auto sample = [](const Shape& shape, std::int64_t begin, std::int64_t rows) {
    return Sample<Slice>{{.begin = begin, .rows = rows}, {{{DType::f32, shape}}}};
  };
  return {sample({1}, 0, 1), sample({17}, 3, 7), sample({7, 33}, 0, 7), sample({7, 33}, 6, 1),
          sample({33, 1, 5}, 7, 17)};
}

std::optional<Alias> Slice::aliased_input(std::uint32_t, Types in) const {
  return Alias{.input = 0, .offset_elements = begin * (in[0].numel() / in[0].shape[0])};
}

std::vector<TensorType> Permute::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  const Shape& shape = in[0].shape;
  if (!is_order(order, shape.rank()))
    throw ShapeError("permute: [{}], padded with zeros, does not order the dimensions of {}",
                     fmt::join(order, ", "), in[0].to_string());
  std::vector<std::int64_t> dims;
  for (std::size_t d = 0; d < shape.rank(); ++d) dims.push_back(shape[order[d]]);
  if (to && !std::ranges::count(f32_and_16_bit, *to))
    throw ShapeError("permute: {} cannot become {}", in[0].to_string(), name_of(*to));
  return {{to.value_or(in[0].dtype), Shape(dims)}};
}

Cost Permute::cost(Types in, Types out) const { return streaming_cost(0, in, out); }

std::vector<Value> Permute::grad(GradBuilder& b) const {
  Order inverse{};
  for (std::size_t d = 0; d < b.input(0).shape().rank(); ++d)
    inverse[order[d]] = static_cast<std::uint8_t>(d);
  if (!to) return {permute(b.grad(), inverse)};
  return {permute(b.grad(), inverse, b.input(0).dtype())};
}

bool Permute::is_conversion() const { return order == decltype(order){0, 2, 3, 1}; }

void Permute::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const std::size_t rank = x.shape.rank();
  std::array<std::int64_t, Shape::max_rank> stride{};  // of x
  for (std::int64_t d = static_cast<std::int64_t>(rank) - 1, s = 1; d >= 0; --d) {
    stride[static_cast<std::size_t>(d)] = s;
    s *= x.shape[static_cast<int>(d)];
  }
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
    std::int64_t source = 0, rest = i;
    for (std::size_t d = rank; d-- > 0;) {
      const std::int64_t extent = y.shape[static_cast<int>(d)];
      source += rest % extent * stride[order[d]];
      rest /= extent;
    }
    y[i] = x[source];
  }
}

std::vector<Sample<Permute>> Permute::samples() {
  auto sample = [](const Shape& shape, Order order) {
    return Sample<Permute>{{.order = order}, {{{DType::f32, shape}}}};
  };
  std::vector<Sample<Permute>> samples{
      sample({}, {}),
      sample({5}, {0}),
      sample({3, 5}, {0, 1}),
      // Whole rows move: heads before positions and back.
      sample({2, 5, 3, 7}, {0, 2, 1, 3}),
      sample({2, 37, 4, 32}, {0, 2, 1, 3}),
      sample({2, 4, 37, 32}, {0, 2, 1, 3}),
      // The innermost dimension moves.
      sample({1, 9}, {1, 0}),
      sample({3, 5}, {1, 0}),
      sample({67, 129}, {1, 0}),
      sample({3, 17, 33}, {0, 2, 1}),
      sample({4, 3, 19}, {2, 1, 0}),
      sample({2, 3, 4, 5}, {3, 2, 1, 0}),
      sample({2, 1, 20, 3}, {3, 0, 1, 2}),
      sample({2, 3, 4, 2, 3, 5}, {5, 3, 0, 4, 1, 2}),
      // Images of few channels, to channels last and first.
      sample({2, 3, 31, 35}, {0, 2, 3, 1}),
      sample({1, 4, 40, 64}, {0, 2, 3, 1}),
      sample({3, 9, 7, 4}, {0, 3, 1, 2}),
      sample({2, 21, 33, 17}, {0, 2, 3, 1}),
  };
  // Converted: all together, by rows, by tiles, and of few channels.
  for (const DType to : f32_and_16_bit)
    for (const auto& [shape, order] : {std::pair<Shape, Order>{{3, 35}, {0, 1}},
                                       {{2, 37, 4, 32}, {0, 2, 1, 3}},
                                       {{67, 129}, {1, 0}},
                                       {{2, 3, 32, 40}, {0, 2, 3, 1}},
                                       {{2, 3, 13, 11}, {0, 2, 3, 1}}})
      samples.push_back({{.order = order, .to = to}, {{{DType::f32, shape}}}});
  return samples;
}

Value reshape(Value x, const Shape& shape) {
  return x.shape() == shape ? x : x.graph->apply1(Reshape{.shape = shape}, {x});
}

Value slice(Value x, std::int64_t begin, std::int64_t rows) {
  return x.graph->apply1(Slice{.begin = begin, .rows = rows}, {x});
}

Value permute(Value x, Order order, std::optional<DType> to) {
  return x.graph->apply1(Permute{.order = order, .to = to}, {x});
}

static_assert(Operator<Reshape> && Differentiable<Reshape> && Aliasing<Reshape>);
static_assert(Operator<Slice> && Aliasing<Slice>);
static_assert(Operator<Permute> && Differentiable<Permute>);

}  // namespace ridge
