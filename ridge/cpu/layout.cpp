#include "ridge/ops/layout.h"

#include <algorithm>

#include "ridge/base/loop_nest.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

template <class T>
KernelPtr copy_all(CpuPrepare& prepare) {
  return make_kernel([&pool = prepare.pool, n = prepare.out[0].numel()](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
      std::copy(x + begin, x + end, y + begin);
    });
  });
}

// The innermost loop runs along both tensors: rows move as they are.
template <class T>
KernelPtr copy_rows(CpuPrepare& prepare, LoopNest nest) {
  const std::int64_t columns = nest.back().extent;
  nest.pop_back();
  return make_kernel([&pool = prepare.pool, columns, nest](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    auto copy = [&, x, y](std::int64_t begin, std::int64_t end) {
      const std::int64_t step = nest.back().strides[1];
      for_each_run(nest, begin, end, [&](std::int64_t row, Offsets at, std::int64_t length) {
        for (std::int64_t r = 0; r < length; ++r)
          std::copy_n(x + at[1] + r * step, columns, y + (row + r) * columns);
      });
    };
    parallel_for(pool, iterations(nest), rows_per_task(columns), copy);
  });
}

// y[r * y_step + c] = x[c * x_step + r], by tiles that stay in the first-level cache while one side
// of them is read along rows and the other written along rows.
template <class T>
void transpose(const T* x, std::int64_t x_step, T* y, std::int64_t y_step, std::int64_t rows,
               std::int64_t columns) {
  constexpr std::int64_t tile = 16;
  for (std::int64_t c0 = 0; c0 < columns; c0 += tile) {
    const std::int64_t c1 = std::min(columns, c0 + tile);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = c0; c < c1; ++c) y[r * y_step + c] = x[c * x_step + r];
  }
}

// The innermost loop runs along the result but not along the operand; some other loop, the rows
// here, runs along the operand. Both together are a transpose, for every iteration of the rest.
template <class T>
KernelPtr transpose_all(CpuPrepare& prepare, LoopNest nest) {
  constexpr std::int64_t strip = 16;
  const Loop columns = nest.back();
  nest.pop_back();
  const auto it = std::ranges::find_if(nest, [](const Loop& l) { return l.strides[1] == 1; });
  const Loop rows = *it;
  nest.erase(it);
  const std::int64_t strips = (rows.extent + strip - 1) / strip;
  const std::int64_t grain = rows_per_task(strip * columns.extent);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    parallel_for(pool, iterations(nest) * strips, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const auto [to, from] = offsets_at(nest, task / strips);
        const std::int64_t r = task % strips * strip;
        transpose(x + from + r, columns.strides[1], y + to + r * rows.strides[0], rows.strides[0],
                  std::min(strip, rows.extent - r), columns.extent);
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
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    if (nest.size() <= 1) return copy_all<T>(prepare);
    return nest.back().strides[1] == 1 ? copy_rows<T>(prepare, nest)
                                       : transpose_all<T>(prepare, nest);
  });
}

}  // namespace ridge
