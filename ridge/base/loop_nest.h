#pragma once

// Loops over the dimensions of a dense tensor while two offsets move along, each with its own
// stride: how broadcasting, reducing and permuting kernels find their operands.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ridge/base/shape.h"

namespace ridge {

using Offsets = std::array<std::int64_t, 2>;

struct NestedLoop {
  std::int64_t extent = 1;
  Offsets strides{};  // in elements; 0 along a dimension that an operand is broadcast over
};

// Outermost first. At most one per dimension.
using LoopNest = std::vector<NestedLoop>;

// The same traversal in the fewest loops: without loops of extent 1, and with two neighbors in one
// where both offsets run on evenly from the inner to the outer.
inline LoopNest merged(const LoopNest& nest) {
  LoopNest result;
  for (const NestedLoop& inner : nest) {
    if (inner.extent == 1) continue;
    auto runs_on = [&](const NestedLoop& outer) {
      return outer.strides[0] == inner.strides[0] * inner.extent &&
             outer.strides[1] == inner.strides[1] * inner.extent;
    };
    if (!result.empty() && runs_on(result.back()))
      result.back() = {result.back().extent * inner.extent, inner.strides};
    else
      result.push_back(inner);
  }
  return result;
}

// The loops over `out`, a dense tensor whose dimension d is dimension order[d] of the dense tensor
// `in`, with the strides of (out, in).
template <class Order>
LoopNest permuted_nest(const Shape& in, const Shape& out, const Order& order) {
  std::array<std::int64_t, Shape::max_rank> in_stride{};
  for (std::int64_t d = static_cast<std::int64_t>(in.rank()) - 1, s = 1; d >= 0; --d) {
    in_stride[static_cast<std::size_t>(d)] = s;
    s *= in[static_cast<int>(d)];
  }
  LoopNest nest(out.rank());
  std::int64_t out_stride = 1;
  for (std::size_t d = out.rank(); d-- > 0;) {
    nest[d] = {out[static_cast<int>(d)], {out_stride, in_stride[order[d]]}};
    out_stride *= nest[d].extent;
  }
  return merged(nest);
}

// The loops over `shape` of two dense operands that broadcast to it.
inline LoopNest broadcast_nest(const Shape& shape, const Shape& a, const Shape& b) {
  LoopNest nest(shape.rank());
  Offsets stride{1, 1};
  for (int d = 1; d <= static_cast<int>(shape.rank()); ++d) {
    NestedLoop& loop = nest[shape.rank() - static_cast<std::size_t>(d)];
    loop.extent = shape[-d];
    for (std::size_t operand = 0; operand < 2; ++operand) {
      const Shape& source = operand == 0 ? a : b;
      if (d > static_cast<int>(source.rank()) || source[-d] == 1) continue;
      loop.strides[operand] = stride[operand];
      stride[operand] *= source[-d];
    }
  }
  return merged(nest);
}

inline std::int64_t iterations(std::span<const NestedLoop> nest) {
  std::int64_t count = 1;
  for (const NestedLoop& loop : nest) count *= loop.extent;
  return count;
}

// Both offsets at one iteration of the nest, counted in row-major order.
inline Offsets offsets_at(std::span<const NestedLoop> nest, std::int64_t iteration) {
  Offsets offsets{};
  for (std::size_t l = nest.size(); l-- > 0;) {
    const NestedLoop& loop = nest[l];
    const std::int64_t i = l == 0 ? iteration : iteration % loop.extent;
    offsets[0] += i * loop.strides[0];
    offsets[1] += i * loop.strides[1];
    iteration /= loop.extent;
  }
  return offsets;
}

// Walks iterations [begin, end) of a nest in runs along its innermost loop, of which there is one:
// body(iteration, offsets at it, length of the run).
template <class F>
void for_each_run(std::span<const NestedLoop> nest, std::int64_t begin, std::int64_t end,
                  const F& body) {
  const NestedLoop& along = nest.back();
  const std::span<const NestedLoop> outer = nest.first(nest.size() - 1);
  std::array<std::int64_t, Shape::max_rank> at{};  // in the outer loops
  for (std::int64_t l = std::ssize(outer), i = begin / along.extent; l-- > 0;) {
    const auto loop = static_cast<std::size_t>(l);
    at[loop] = i % outer[loop].extent;
    i /= outer[loop].extent;
  }
  Offsets offsets = offsets_at(outer, begin / along.extent);
  const auto move = [&](const NestedLoop& loop, std::int64_t steps) {
    offsets[0] += steps * loop.strides[0];
    offsets[1] += steps * loop.strides[1];
  };
  std::int64_t skipped = begin % along.extent;
  for (std::int64_t i = begin; i < end; skipped = 0) {
    const std::int64_t length = std::min(end - i, along.extent - skipped);
    body(i,
         Offsets{offsets[0] + skipped * along.strides[0], offsets[1] + skipped * along.strides[1]},
         length);
    i += length;
    for (std::size_t l = outer.size(); l-- > 0;) {
      move(outer[l], 1);
      if (++at[l] < outer[l].extent) break;
      move(outer[l], -outer[l].extent);
      at[l] = 0;
    }
  }
}

// The loops of a sum over dimensions: from elements of shape `from`, first operand, to sums of
// shape `to`, which broadcasts to it, second operand. The innermost loop stands apart.
struct SumNest {
  LoopNest kept, summed;    // without the innermost loop
  std::int64_t extent = 1;  // of the innermost loop
  bool innermost_kept = true;

  SumNest(const Shape& from, const Shape& to) {
    LoopNest nest = broadcast_nest(from, from, to);
    if (nest.empty()) nest.push_back({1, {1, 1}});
    extent = nest.back().extent;
    innermost_kept = nest.back().strides[1] != 0;
    nest.pop_back();
    for (const NestedLoop& loop : nest) (loop.strides[1] != 0 ? kept : summed).push_back(loop);
  }
};

}  // namespace ridge
