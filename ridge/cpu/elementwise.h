#pragma once

// Kernels that compute each element of a dense result from the same element of the operands.

#include <cstdint>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"
#include "ridge/cpu/streamed.h"

namespace ridge {

// Elements per task: some 64 KiB per operand, well above the cost of handing a task over.
inline constexpr std::int64_t elements_per_task = 16384;

// y[i] = function(x[i]), with function from float to float.
template <class In, class Out, class F>
KernelPtr map_elements(CpuPrepare& prepare, F function) {
  const std::int64_t n = prepare.out[0].numel();
  return make_kernel([&pool = prepare.pool, n, function](const Launch& call) {
    const In* x = call.in<In>(0);
    Out* y = call.out<Out>();
    const auto map = [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
      for (std::int64_t i = first; i < last; ++i) store(&y[i], function(load(&x[i])));
    };
    parallel_for(pool, n, elements_per_task,
                 [=](std::int64_t begin, std::int64_t end) { streamed(begin, end, map, x); });
  });
}

// y[i] = function(a[i], b[i]), with all three of one type.
template <class T, class F>
KernelPtr map_pairs(CpuPrepare& prepare, F function) {
  const std::int64_t n = prepare.out[0].numel();
  return make_kernel([&pool = prepare.pool, n, function](const Launch& call) {
    const T *a = call.in<T>(0), *b = call.in<T>(1);
    T* y = call.out<T>();
    const auto map = [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
      for (std::int64_t i = first; i < last; ++i) store(&y[i], function(load(&a[i]), load(&b[i])));
    };
    parallel_for(pool, n, elements_per_task,
                 [=](std::int64_t begin, std::int64_t end) { streamed(begin, end, map, a, b); });
  });
}

}  // namespace ridge
