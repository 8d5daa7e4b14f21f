#include "ridge/ops/heads.h"

#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/fill.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

void check_layout(std::string_view op, const HeadLayout& layout, Types in) {
  if (layout.n_heads < 1 || layout.n_kv_heads < 1 || layout.head_dim < 1)
    throw ShapeError("{}: {} query heads, {} key heads and {} elements a head must be positive", op,
                     layout.n_heads, layout.n_kv_heads, layout.head_dim);
  if (layout.rope_theta != 0 && layout.head_dim % 2 != 0)
    throw ShapeError(
        "{}: the rotary embedding rotates pairs, and {} elements a head are not even: {}", op,
        layout.head_dim, list_of(in));
}

// q, k, v of a packed tensor, or the packed tensor that they make.
std::vector<TensorType> split_types(const HeadLayout& layout, const TensorType& packed) {
  const std::int64_t batch = packed.shape[0], seq = packed.shape[1], d = layout.head_dim;
  const TensorType q{packed.dtype, {batch, layout.n_heads, seq, d}};
  const TensorType k{packed.dtype, {batch, layout.n_kv_heads, seq, d}};
  return {q, k, k};
}

TensorType packed_type(const HeadLayout& layout, const TensorType& q) {
  return {q.dtype, {q.shape[0], q.shape[2], layout.columns()}};
}

Cost moving_cost(const HeadLayout& layout, const TensorType& packed, Types in, Types out) {
  // Per pair of q and k: four products, a sum and a difference. The table of angles is made once,
  // not here.
  const std::int64_t tokens = packed.shape.rows();
  const std::int64_t rotated = tokens * (layout.n_heads + layout.n_kv_heads) * layout.head_dim / 2;
  return streaming_cost(layout.rope_theta != 0 ? 6 * rotated : 0, in, out);
}

// Calls move(element of packed, operand of (q, k, v), element of that, rotates, angle) for every
// element; where two neighbors turn together by the angle, for the first of them.
template <class F>
void for_each_element(const HeadLayout& layout, const Shape& packed, const F& move) {
  const std::int64_t seq = packed[1], d = layout.head_dim, heads = packed[2] / d;
  const std::int64_t counts[] = {layout.n_heads, layout.n_kv_heads, layout.n_kv_heads};
  for (std::int64_t b = 0; b < packed[0]; ++b)
    for (std::int64_t s = 0; s < seq; ++s)
      for (std::int64_t h = 0; h < heads; ++h) {
        std::size_t operand = 0;
        std::int64_t head = h;
        while (head >= counts[operand]) head -= counts[operand++];
        const bool rotates = layout.rope_theta != 0 && operand < 2;
        for (std::int64_t c = 0; c < d; c += rotates ? 2 : 1) {
          const double exponent = -static_cast<double>(c) / static_cast<double>(d);
          const double angle =
              rotates ? static_cast<double>(s) * std::pow(double{layout.rope_theta}, exponent)
                      : 0.0;
          move(((b * seq + s) * heads + h) * d + c, operand,
               ((b * counts[operand] + head) * seq + s) * d + c, rotates, angle);
        }
      }
}

struct Layouts {
  std::int64_t batch, seq;
  HeadLayout layout;
};

// One head, grouped and equal heads, odd sizes without rotation, several tasks.
std::vector<Layouts> sample_layouts() {
  return {{1, 1, {1, 1, 2, 10000.0f}}, {2, 5, {4, 2, 6, 10000.0f}}, {1, 7, {3, 1, 34, 500.0f}},
          {2, 17, {3, 3, 7, 0.0f}},    {2, 33, {2, 1, 1, 0.0f}},    {3, 100, {4, 4, 16, 10000.0f}}};
}

}  // namespace

std::vector<TensorType> SplitHeads::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  check_layout(name, layout, in);
  if (in[0].shape.rank() != 3 || in[0].shape[2] != layout.columns())
    throw ShapeError("split_heads: {} does not hold {} + 2 * {} heads of {} for each token",
                     list_of(in), layout.n_heads, layout.n_kv_heads, layout.head_dim);
  return split_types(layout, in[0]);
}

Cost SplitHeads::cost(Types in, Types out) const { return moving_cost(layout, in[0], in, out); }

std::vector<Value> SplitHeads::grad(GradBuilder& b) const {
  std::vector<Value> grads;
  for (std::size_t i = 0; i < 3; ++i)
    grads.push_back(b.grad(i) ? b.grad(i) : fill(b.graph(), b.output(i).type(), 0.0f));
  return {b.graph().apply1(MergeHeads{.layout = layout}, {grads[0], grads[1], grads[2]})};
}

void SplitHeads::reference(ReferenceCall& call) const {
  const auto& packed = call.inputs[0];
  auto move = [&](std::int64_t i, std::size_t operand, std::int64_t o, bool rotates, double angle) {
    const auto& y = call.outputs[operand];
    y[o] = packed[i];
    if (!rotates) return;
    y[o] = packed[i] * std::cos(angle) - packed[i + 1] * std::sin(angle);
    y[o + 1] = packed[i] * std::sin(angle) + packed[i + 1] * std::cos(angle);
  };
  for_each_element(layout, packed.shape, move);
}

std::vector<Sample<SplitHeads>> SplitHeads::samples() {
  std::vector<Sample<SplitHeads>> samples;
  for (const auto& [batch, seq, layout] : sample_layouts())
    samples.push_back({{layout}, {{{DType::f32, {batch, seq, layout.columns()}}}}});
  return samples;
}

std::vector<TensorType> MergeHeads::infer(Types in) const {
  check_count(name, in, 3);
  check_dtype(name, in, 0);
  check_layout(name, layout, in);
  if (in[0].shape.rank() != 4)
    throw ShapeError("merge_heads takes tensors of four dimensions: {}", list_of(in));
  const TensorType packed = packed_type(layout, in[0]);
  const std::vector<TensorType> wanted = split_types(layout, packed);
  for (std::size_t i = 0; i < 3; ++i) check_type(name, in, i, wanted[i]);
  return {packed};
}

Cost MergeHeads::cost(Types in, Types out) const { return moving_cost(layout, out[0], in, out); }

void MergeHeads::reference(ReferenceCall& call) const {
  const auto& packed = call.outputs[0];
  auto move = [&](std::int64_t i, std::size_t operand, std::int64_t o, bool rotates, double angle) {
    const auto& x = call.inputs[operand];
    packed[i] = x[o];
    if (!rotates) return;
    packed[i] = x[o] * std::cos(angle) + x[o + 1] * std::sin(angle);
    packed[i + 1] = x[o + 1] * std::cos(angle) - x[o] * std::sin(angle);
  };
  for_each_element(layout, packed.shape, move);
}

std::vector<Sample<MergeHeads>> MergeHeads::samples() {
  std::vector<Sample<MergeHeads>> samples;
  for (const auto& [batch, seq, layout] : sample_layouts()) {
    const TensorType q{DType::f32, {batch, layout.n_heads, seq, layout.head_dim}};
    const TensorType k{DType::f32, {batch, layout.n_kv_heads, seq, layout.head_dim}};
    samples.push_back({{layout}, {{q}, {k}, {k}}});
  }
  return samples;
}

static_assert(Operator<SplitHeads> && Differentiable<SplitHeads>);
static_assert(Operator<MergeHeads>);

}  // namespace ridge
