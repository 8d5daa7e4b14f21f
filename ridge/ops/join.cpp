#include "ridge/ops/join.h"

#include <algorithm>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

// A tensor seen from one of its dimensions: what lies outside it, its extent, what lies inside.
struct Around {
  std::int64_t outer = 1, extent = 1, inner = 1;

  Around(const Shape& shape, std::uint32_t dim) {
    for (std::uint32_t d = 0; d < shape.rank(); ++d)
      (d < dim ? outer : (d == dim ? extent : inner)) *= shape[static_cast<int>(d)];
  }
};

Shape with_extent(const Shape& shape, std::uint32_t dim, std::int64_t extent) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[dim] = extent;
  return Shape(dims);
}

void check_dim(std::string_view op, Types in, std::uint32_t dim) {
  if (dim >= in[0].shape.rank())
    throw ShapeError("{}: there is no dimension {}: {}", op, dim, list_of(in));
}

// y[.., i, ..] = x[.., source(i), ..], or 0 where there is no such element.
template <class F>
void gather(const ReferenceTensor& x, const ReferenceTensor& y, std::uint32_t dim,
            const F& source) {
  const Around from(x.shape, dim), to(y.shape, dim);
  for (std::int64_t o = 0; o < to.outer; ++o)
    for (std::int64_t i = 0; i < to.extent; ++i)
      for (std::int64_t k = 0; k < to.inner; ++k) {
        const std::int64_t s = source(i);
        y[(o * to.extent + i) * to.inner + k] =
            s < 0 || s >= from.extent ? 0.0 : x[(o * from.extent + s) * from.inner + k];
      }
}

std::int64_t modulo(std::int64_t a, std::int64_t b) { return (a % b + b) % b; }

// The elements [begin, end) of a window that lie in the operand.
struct Inside {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

Inside inside_of(const Window& w, std::int64_t extent) {
  const std::int64_t begin = std::clamp<std::int64_t>(w.begin, 0, extent);
  return {begin, std::clamp(w.begin + w.extent, begin, extent)};
}

}  // namespace

std::vector<TensorType> Concat::infer(Types in) const {
  if (in.empty()) throw ShapeError("{} of nothing", name);
  check_dtype(name, in, 0, dtypes);
  check_dim(name, in, dim);
  std::int64_t extent = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    check_same_dtype(name, in, 0, i);
    check_rank(name, in, i, in[0].shape.rank());
    const std::int64_t here = in[i].shape[static_cast<int>(dim)];
    if (with_extent(in[0].shape, dim, here) != in[i].shape)
      throw ShapeError("{}: operands 0 and {} differ in other dimensions than {}: {}", name, i, dim,
                       list_of(in));
    extent += here;
  }
  return {{in[0].dtype, with_extent(in[0].shape, dim, extent)}};
}

Cost Concat::cost(Types in, Types out) const { return streaming_cost(0, in, out); }

JoinPlan Concat::plan(Types in) const {
  JoinPlan plan;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Around at(in[i].shape, dim);
    const std::int64_t columns = at.extent * at.inner;
    plan.rows = at.outer;
    plan.columns += columns;
    plan.pieces.push_back({columns, static_cast<int>(i), 0, columns});
  }
  return plan;
}

std::vector<Value> Concat::grad(GradBuilder& b) const {
  std::vector<Value> grads;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < b.input_count(); ++i) {
    const std::int64_t extent = b.input(i).shape()[static_cast<int>(dim)];
    grads.push_back(b.needs(i) ? window(b.grad(), dim, begin, extent) : Value{});
    begin += extent;
  }
  return grads;
}

void Concat::reference(ReferenceCall& call) const {
  const auto& y = call.outputs[0];
  const Around to(y.shape, dim);
  std::int64_t begin = 0;
  for (const ReferenceTensor& x : call.inputs) {
    const Around from(x.shape, dim);
    for (std::int64_t o = 0; o < from.outer; ++o)
      for (std::int64_t i = 0; i < from.extent; ++i)
        for (std::int64_t k = 0; k < from.inner; ++k)
          y[(o * to.extent + begin + i) * to.inner + k] = x[(o * from.extent + i) * from.inner + k];
    begin += from.extent;
  }
}

std::vector<Sample<Concat>> Concat::samples() {
  std::vector<Sample<Concat>> samples;
  auto add = [&](std::uint32_t dim, std::initializer_list<Shape> shapes) {
    Sample<Concat> sample{{dim}, {}};
    for (const Shape& shape : shapes) sample.inputs.push_back({{DType::f32, shape}});
    samples.push_back(std::move(sample));
  };
  add(0, {{1}});
  add(0, {{3}, {4}});
  add(1, {{2, 3, 5}, {2, 1, 5}, {2, 7, 5}});
  add(2, {{2, 3, 5}, {2, 3, 1}});
  add(0, {{5, 33}, {2, 33}});
  add(1, {{2, 16, 8, 8}, {2, 24, 8, 8}});
  add(3, {{2, 9, 9, 64}, {2, 9, 9, 32}, {2, 9, 9, 8}});
  add(1, {{4, 1, 64}, {4, 196, 64}});
  // As many as a dense block joins.
  Sample<Concat> many{{1}, {}};
  for (std::int64_t i = 0; i < 70; ++i) many.inputs.push_back({{DType::f32, {3, 1 + i % 4, 4}}});
  samples.push_back(std::move(many));
  return samples;
}

std::vector<TensorType> Window::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  check_dim(name, in, dim);
  if (extent < 1) throw ShapeError("{} of {} elements", name, extent);
  return {{in[0].dtype, with_extent(in[0].shape, dim, extent)}};
}

Cost Window::cost(Types in, Types out) const {
  Cost cost = streaming_cost(0, in, out);
  const std::int64_t all = in[0].shape[static_cast<int>(dim)];
  cost.bytes_read = cost.bytes_read / all * inside_of(*this, all).count();
  return cost;
}

JoinPlan Window::plan(Types in) const {
  const Around at(in[0].shape, dim);
  const Inside inside = inside_of(*this, at.extent);
  // Where no element is inside, all are before the operand.
  const std::int64_t before = inside.count() == 0 ? extent : std::max<std::int64_t>(0, -begin);
  JoinPlan plan{.rows = at.outer, .columns = extent * at.inner, .pieces = {}};
  auto add = [&](std::int64_t elements, int operand) {
    if (elements > 0)
      plan.pieces.push_back({elements * at.inner, operand,
                             operand < 0 ? 0 : inside.begin * at.inner, at.extent * at.inner});
  };
  add(before, -1);
  add(inside.count(), 0);
  add(extent - before - inside.count(), -1);
  return plan;
}

std::vector<Value> Window::grad(GradBuilder& b) const {
  const std::int64_t all = b.input(0).shape()[static_cast<int>(dim)];
  // Of rows that were only filled up the gradient lies where it is.
  if (dim == 0 && begin == 0 && extent >= all) return {slice(b.grad(), 0, all)};
  return {window(b.grad(), dim, -begin, all)};
}

void Window::reference(ReferenceCall& call) const {
  gather(call.inputs[0], call.outputs[0], dim, [&](std::int64_t i) { return begin + i; });
}

std::vector<Sample<Window>> Window::samples() {
  std::vector<Sample<Window>> samples;
  auto add = [&](const Window& op, const Shape& shape) {
    samples.push_back({op, {{{DType::f32, shape}}}});
  };
  add({0, 0, 1}, {1});
  add({0, 2, 3}, {7});
  add({1, 1, 2}, {3, 5, 7});
  add({2, 3, 4}, {3, 5, 7});
  // Padding before, after, on both sides, and nothing but padding.
  add({1, -2, 6}, {3, 5, 4});
  add({1, 3, 9}, {3, 5, 8});
  add({2, -1, 9}, {2, 4, 7, 16});
  add({1, 7, 3}, {2, 4, 3});
  add({1, -9, 3}, {2, 4, 3});
  add({0, 0, 8}, {5, 3});
  add({1, 64, 64}, {2, 192, 14, 14});
  add({2, 8, 24}, {2, 9, 40});
  return samples;
}

std::vector<TensorType> Roll::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  check_dim(name, in, dim);
  return {in[0]};
}

Cost Roll::cost(Types in, Types out) const { return streaming_cost(0, in, out); }

JoinPlan Roll::plan(Types in) const {
  const Around at(in[0].shape, dim);
  const std::int64_t row = at.extent * at.inner;
  const std::int64_t wrapped = modulo(shift, at.extent) * at.inner;  // from the end to the front
  JoinPlan plan{.rows = at.outer, .columns = row, .pieces = {}};
  if (wrapped > 0) plan.pieces.push_back({wrapped, 0, row - wrapped, row});
  plan.pieces.push_back({row - wrapped, 0, 0, row});
  return plan;
}

std::vector<Value> Roll::grad(GradBuilder& b) const { return {roll(b.grad(), dim, -shift)}; }

void Roll::reference(ReferenceCall& call) const {
  const std::int64_t extent = call.inputs[0].shape[static_cast<int>(dim)];
  gather(call.inputs[0], call.outputs[0], dim,
         [&](std::int64_t i) { return modulo(i - shift, extent); });
}

std::vector<Sample<Roll>> Roll::samples() {
  std::vector<Sample<Roll>> samples;
  auto add = [&](const Roll& op, const Shape& shape) {
    samples.push_back({op, {{{DType::f32, shape}}}});
  };
  add({0, 5}, {1});
  add({0, 3}, {7});
  add({0, -3}, {7});
  add({1, 2}, {3, 5, 7});
  add({2, -12}, {3, 5, 7});
  add({1, 0}, {3, 5, 7});
  add({1, -3}, {2, 14, 14, 96});
  add({2, 3}, {2, 14, 14, 96});
  return samples;
}

Value concat(std::span<const Value> parts, std::uint32_t dim) {
  if (parts.empty()) throw UsageError("concat of nothing");
  return parts[0].graph->apply(Concat{dim}, parts)[0];
}

Value window(Value x, std::uint32_t dim, std::int64_t begin, std::int64_t extent) {
  return x.graph->apply1(Window{dim, begin, extent}, {x});
}

Value roll(Value x, std::uint32_t dim, std::int64_t shift) {
  return x.graph->apply1(Roll{dim, shift}, {x});
}

static_assert(Operator<Concat> && Differentiable<Concat>);
static_assert(Operator<Window> && Differentiable<Window>);
static_assert(Operator<Roll> && Differentiable<Roll>);

}  // namespace ridge
