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

// y = softmax(scale * x) of one row.
template <class T>
void softmax_row(const T* x, T* y, float scale, std::int64_t columns) {
  float max = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : max)
  for (std::int64_t c = 0; c < columns; ++c) {
    const float scaled = scale * load(&x[c]);
    max = scaled > max ? scaled : max;
  }
  float sum = 0;
  if constexpr (std::is_same_v<T, float>) {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < columns; ++c) sum += y[c] = vexp(scale * x[c] - max);
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) y[c] *= inverse;
  } else {  // y cannot hold the exponentials unrounded: they are computed twice
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < columns; ++c) sum += vexp(scale * load(&x[c]) - max);
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c)
      store(&y[c], vexp(scale * load(&x[c]) - max) * inverse);
  }
}

// dx = scale * y * (dy - sum(dy * y)) of one row.
template <class T>
void differentiate_row(const T* dy, const T* y, T* dx, float scale, std::int64_t columns) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t c = 0; c < columns; ++c) dot += load(&dy[c]) * load(&y[c]);
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c)
    store(&dx[c], scale * load(&y[c]) * (load(&dy[c]) - dot));
}

template <class T>
KernelPtr forward(CpuPrepare& prepare) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, columns](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        softmax_row(x + r * columns, y + r * columns, 1.0f, columns);
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
      for (std::int64_t r = begin; r < end; ++r)
        differentiate_row(dy + r * columns, y + r * columns, dx + r * columns, 1.0f, columns);
    });
  });
}

template <class T>
KernelPtr masked_forward(CpuPrepare& prepare, float scale) {
  const std::int64_t extent = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, extent, scale](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(extent), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t seen = r % extent + 1;
        softmax_row(x + r * extent, y + r * extent, scale, seen);
        std::fill_n(y + r * extent + seen, extent - seen, T{});
      }
    });
  });
}

template <class T>
KernelPtr masked_backward(CpuPrepare& prepare, float scale) {
  const std::int64_t extent = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, extent, scale](const Launch& call) {
    const T *dy = call.in<T>(0), *y = call.in<T>(1);
    T* dx = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(extent), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t seen = r % extent + 1, at = r * extent;
        differentiate_row(dy + at, y + at, dx + at, scale, seen);
        std::fill_n(dx + at + seen, extent - seen, T{});
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

KernelPtr MaskedSoftmax::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return masked_forward<T>(prepare, scale); });
}

KernelPtr MaskedSoftmaxGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return masked_backward<T>(prepare, scale); });
}

}  // namespace ridge
