#include "ridge/ops/layout.h"

#include <algorithm>

#include "ridge/base/loop_nest.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

// y[i] = x[i], converted if the types differ.
template <class From, class To>
void copy(const From* x, std::int64_t n, To* y) {
  if constexpr (std::is_same_v<From, To>) {
    std::copy_n(x, n, y);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) store(&y[i], load(&x[i]));
  }
}

template <class From, class To>
KernelPtr copy_all(CpuPrepare& prepare) {
  return make_kernel([&pool = prepare.pool, n = prepare.out[0].numel()](const Launch& call) {
    const From* x = call.in<From>(0);
    To* y = call.out<To>();
    parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
      copy(x + begin, end - begin, y + begin);
    });
  });
}

// The innermost loop runs along both tensors: rows move as they are.
template <class From, class To>
KernelPtr copy_rows(CpuPrepare& prepare, LoopNest nest) {
  const std::int64_t columns = nest.back().extent;
  nest.pop_back();
  return make_kernel([&pool = prepare.pool, columns, nest](const Launch& call) {
    const From* x = call.in<From>(0);
    To* y = call.out<To>();
    auto copy_some = [&, x, y](std::int64_t begin, std::int64_t end) {
      const std::int64_t step = nest.back().strides[1];
      for_each_run(nest, begin, end, [&](std::int64_t row, Offsets at, std::int64_t length) {
        for (std::int64_t r = 0; r < length; ++r)
          copy(x + at[1] + r * step, columns, y + (row + r) * columns);
      });
    };
    parallel_for(pool, iterations(nest), rows_per_task(columns), copy_some);
  });
}

// y[r * y_step + c] = x[c * x_step + r], by tiles that stay in the first-level cache while one side
// of them is read along rows and the other written along rows.
template <class From, class To>
void transpose(const From* x, std::int64_t x_step, To* y, std::int64_t y_step, std::int64_t rows,
               std::int64_t columns) {
  constexpr std::int64_t tile = 16;
  for (std::int64_t c0 = 0; c0 < columns; c0 += tile) {
    const std::int64_t c1 = std::min(columns, c0 + tile);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = c0; c < c1; ++c) {
        if constexpr (std::is_same_v<From, To>)
          y[r * y_step + c] = x[c * x_step + r];
        else
          store(&y[r * y_step + c], load(&x[c * x_step + r]));
      }
  }
}

// The same for so few columns, side by side in y, that the compiler can turn the inner loop into
// shuffles of whole vectors.
template <int columns, class From, class To>
void interleave(const From* x, std::int64_t x_step, To* y, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) store(&y[r * columns + c], load(&x[c * x_step + r]));
}

// The innermost loop runs along the result but not along the operand; some other loop, the rows
// here, runs along the operand. Both together are a transpose, for every iteration of the rest.
template <class From, class To>
KernelPtr transpose_all(CpuPrepare& prepare, LoopNest nest) {
  const NestedLoop columns = nest.back();
  nest.pop_back();
  const auto it = std::ranges::find_if(nest, [](const NestedLoop& l) { return l.strides[1] == 1; });
  const NestedLoop rows = *it;
  nest.erase(it);
  constexpr std::int64_t colors = 3;
  const bool is_colored = columns.extent == colors && rows.strides[0] == colors;
  const std::int64_t strip = is_colored ? 512 : 16;
  const std::int64_t strips = (rows.extent + strip - 1) / strip;
  const std::int64_t grain = rows_per_task(strip * columns.extent);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const From* x = call.in<From>(0);
    To* y = call.out<To>();
    parallel_for(pool, iterations(nest) * strips, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const auto [to, from] = offsets_at(nest, task / strips);
        const std::int64_t r = task % strips * strip;
        const std::int64_t length = std::min(strip, rows.extent - r);
        const From* const x_strip = x + from + r;
        To* const y_strip = y + to + r * rows.strides[0];
        if (is_colored)
          interleave<colors>(x_strip, columns.strides[1], y_strip, length);
        else
          transpose(x_strip, columns.strides[1], y_strip, rows.strides[0], length, columns.extent);
      }
    });
  });
}

}  // namespace

// Nothing to do: the result is the operand's memory, or a part of it.
KernelPtr Reshape::cpu(CpuPrepare&) const { return nullptr; }
KernelPtr Slice::cpu(CpuPrepare&) const { return nullptr; }

KernelPtr Permute::cpu(CpuPrepare& prepare) const {
  const LoopNest nest = permuted_nest(prepare.in[0].shape, prepare.out[0].shape, order);
  return dispatch_floating(prepare.in[0].dtype, [&]<class From>() {
    return dispatch_floating(prepare.out[0].dtype, [&]<class To>() {
      if (nest.size() <= 1) return copy_all<From, To>(prepare);
      return nest.back().strides[1] == 1 ? copy_rows<From, To>(prepare, nest)
                                         : transpose_all<From, To>(prepare, nest);
    });
  });
}

}  // namespace ridge
