#include "ridge/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"
#include "ridge/cpu/streamed.h"

namespace ridge {
namespace {

// Each task leaves the sum of its rows' losses in the workspace; the sums are added in order.
template <class T>
KernelPtr forward(CpuPrepare& prepare, std::int64_t classes) {
  const std::int64_t pitch = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  const std::int64_t columns = std::min(classes, pitch);
  const std::int64_t grain = rows_per_task(columns), tasks = (rows + grain - 1) / grain;
  prepare.workspace = static_cast<std::size_t>(tasks) * sizeof(double);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const T* logits = call.in<T>(0);
    const auto* targets = call.in<std::int32_t>(1);
    float *loss = call.out<float>(0), *lse = call.out<float>(1);
    auto* partial = static_cast<double*>(call.workspace);
    parallel_for(pool, rows, grain, [=](std::int64_t begin, std::int64_t end) {
      double losses = 0;
      for (std::int64_t r = begin; r < end; ++r) {
        const T* x = logits + r * pitch;
        float max = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : max)
        for (std::int64_t c = 0; c < columns; ++c) max = load(&x[c]) > max ? load(&x[c]) : max;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = 0; c < columns; ++c) sum += vexp(load(&x[c]) - max);
        const float log_sum = std::log(sum);
        lse[r] = max + log_sum;
        // Not from the rounded lse: logits may be large where their differences are small.
        losses += static_cast<double>(max) - load(&x[targets[r]]) + log_sum;
      }
      partial[begin / grain] = losses;
    });
    double total = 0;
    for (std::int64_t t = 0; t < tasks; ++t) total += partial[t];
    *loss = static_cast<float>(total / static_cast<double>(rows));
  });
}

template <class T>
KernelPtr backward(CpuPrepare& prepare, std::int64_t classes) {
  static constexpr CrossEntropyGrad::Operands operand = CrossEntropyGrad::operands();
  const Shape& shape = prepare.in[operand.logits].shape;
  const std::int64_t pitch = shape[-1], rows = shape.rows(), columns = std::min(classes, pitch);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const float scale = *call.in<float>(operand.dloss) / static_cast<float>(rows);
    const T* logits = call.in<T>(operand.logits);
    const auto* targets = call.in<std::int32_t>(operand.targets);
    const float* lse = call.in<float>(operand.lse);
    T* dlogits = call.out<T>(0);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      // A variable of this function: a captured one could change with every store to dx.
      const float factor = scale;
      for (std::int64_t r = begin; r < end; ++r) {
        const T* x = logits + r * pitch;
        T* dx = dlogits + r * pitch;
        const float offset = lse[r];
        // First of all, because dx may be the memory of x.
        const float hit = factor * (vexp(load(&x[targets[r]]) - offset) - 1.0f);
        const auto run = [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
          for (std::int64_t c = first; c < last; ++c)
            store(&dx[c], factor * vexp(load(&x[c]) - offset));
        };
        streamed(0, columns, run, x);
        for (std::int64_t c = columns; c < pitch; ++c) store(&dx[c], 0.0f);
        store(&dx[targets[r]], hit);
      }
    });
  });
}

}  // namespace

KernelPtr CrossEntropy::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T>(prepare, classes); });
}

KernelPtr CrossEntropyGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[operands().logits].dtype,
                           [&]<class T>() { return backward<T>(prepare, classes); });
}

}  // namespace ridge
