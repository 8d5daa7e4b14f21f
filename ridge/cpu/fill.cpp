#include "ridge/ops/fill.h"

#include "ridge/cpu/elementwise.h"

namespace ridge {

KernelPtr Fill::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(type.dtype, [&]<class T>() {
    return make_kernel([&pool = prepare.pool, n = type.numel(), x = value](const Launch& call) {
      T* y = call.out<T>();
      parallel_for(pool, n, elements_per_task, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) store(&y[i], x);
      });
    });
  });
}

}  // namespace ridge
