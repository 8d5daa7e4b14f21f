#include "ridge/ops/softmax.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "ridge/cpu/micro_gemm.h"
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

// Scratch memory of a task for softmax_row, in floats.
std::unique_ptr<float[]> row_scratch(std::int64_t columns) {
  return std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(columns + widest_vector));
}

// y = softmax(scale * x) of one row. The exponentials stay in `scratch`, because y may be too
// coarse for them; it is filled up to whole vectors with -infinity, whose exponential is 0, because
// a row's last few elements one by one would take as long as hundreds in vectors.
template <class T>
void softmax_row(const T* x, T* y, float scale, std::int64_t columns, float* scratch) {
  float max = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : max)
  for (std::int64_t c = 0; c < columns; ++c) {
    const float scaled = scale * load(&x[c]);
    scratch[c] = scaled;
    max = scaled > max ? scaled : max;
  }
  const std::int64_t padded = padded_to_vectors(columns);
  std::fill(scratch + columns, scratch + padded, -std::numeric_limits<float>::infinity());
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < padded; ++c) sum += scratch[c] = vexp(scratch[c] - max);
  const float inverse = 1.0f / sum;
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) store(&y[c], scratch[c] * inverse);
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

// Fetches the elements that row `r` + 1 sees while row r is worked on: the hardware, which expects
// row r to go on to its end, would begin with the next row's first element only.
template <class T>
void prefetch_next(const T* x, std::int64_t r, std::int64_t end, std::int64_t extent) {
  if (r + 1 == end) return;
  const T* next = x + (r + 1) * extent;
  for (std::int64_t i = 0; i <= (r + 1) % extent; i += 64 / static_cast<std::int64_t>(sizeof(T)))
    __builtin_prefetch(next + i);
}

template <class T>
KernelPtr forward(CpuPrepare& prepare) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, columns](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      const auto scratch = row_scratch(columns);
      for (std::int64_t r = begin; r < end; ++r)
        softmax_row(x + r * columns, y + r * columns, 1.0f, columns, scratch.get());
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
      const auto scratch = row_scratch(extent);
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t seen = r % extent + 1;
        prefetch_next(x, r, end, extent);
        softmax_row(x + r * extent, y + r * extent, scale, seen, scratch.get());
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
        prefetch_next(dy, r, end, extent);
        prefetch_next(y, r, end, extent);
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
