#include "ridge/ops/softmax.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

template <class T>
KernelPtr mask(CpuPrepare& prepare, float value) {
  const std::int64_t extent = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, extent, value](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(extent), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t seen = r % extent + 1;
        std::copy_n(x + r * extent, seen, y + r * extent);
        std::fill_n(y + r * extent + seen, extent - seen, T(value));
      }
    });
  });
}

template <class T>
KernelPtr forward(CpuPrepare& prepare) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, columns](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* xr = x + r * columns;
        T* yr = y + r * columns;
        float max = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : max)
        for (std::int64_t c = 0; c < columns; ++c) max = load(&xr[c]) > max ? load(&xr[c]) : max;
        float sum = 0;
        if constexpr (std::is_same_v<T, float>) {
#pragma omp simd reduction(+ : sum)
          for (std::int64_t c = 0; c < columns; ++c) sum += yr[c] = vexp(xr[c] - max);
          const float scale = 1.0f / sum;
#pragma omp simd
          for (std::int64_t c = 0; c < columns; ++c) yr[c] *= scale;
        } else {  // y cannot hold the exponentials unrounded: they are computed twice
#pragma omp simd reduction(+ : sum)
          for (std::int64_t c = 0; c < columns; ++c) sum += vexp(load(&xr[c]) - max);
          const float scale = 1.0f / sum;
#pragma omp simd
          for (std::int64_t c = 0; c < columns; ++c)
            store(&yr[c], vexp(load(&xr[c]) - max) * scale);
        }
      }
    });
  });
}

template <class T>
KernelPtr backward(CpuPrepare& prepare) {
  const std::int64_t columns = prepare.in[1].shape[-1], rows = prepare.in[1].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, columns](const Launch& call) {
    const T *dy = call.in<T>(0), *y = call.in<T>(1);
    T* dx = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T *dyr = dy + r * columns, *yr = y + r * columns;
        T* dxr = dx + r * columns;
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t c = 0; c < columns; ++c) dot += load(&dyr[c]) * load(&yr[c]);
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c)
          store(&dxr[c], load(&yr[c]) * (load(&dyr[c]) - dot));
      }
    });
  });
}

}  // namespace

KernelPtr CausalMask::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return mask<T>(prepare, value); });
}

KernelPtr Softmax::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return forward<T>(prepare); });
}

KernelPtr SoftmaxGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return backward<T>(prepare); });
}

}  // namespace ridge
