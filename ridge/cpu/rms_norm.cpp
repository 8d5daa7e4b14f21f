#include "ridge/ops/rms_norm.h"

#include <cmath>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

template <class T>
KernelPtr forward(CpuPrepare& prepare, float eps) {
  const std::int64_t columns = prepare.in[0].shape[-1], rows = prepare.in[0].shape.rows();
  return make_kernel([&pool = prepare.pool, rows, columns, eps](const Launch& call) {
    const T* x = call.in<T>(0);
    const float* weight = call.in<float>(1);
    T* y = call.out<T>(0);
    float* rstd = call.out<float>(1);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* xr = x + r * columns;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = 0; c < columns; ++c) sum += load(&xr[c]) * load(&xr[c]);
        const float scale = 1.0f / std::sqrt(sum / static_cast<float>(columns) + eps);
        rstd[r] = scale;
        T* yr = y + r * columns;
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) store(&yr[c], load(&xr[c]) * scale * weight[c]);
      }
    });
  });
}

// The sum over rows for dweight: a fixed number of row blocks, each summed into its own row of the
// workspace, then the blocks in order. The result does not depend on the number of threads.
template <class T>
KernelPtr backward(CpuPrepare& prepare) {
  constexpr std::int64_t max_blocks = 32;
  const std::int64_t columns = prepare.in[1].shape[-1], rows = prepare.in[1].shape.rows();
  const std::int64_t block = (rows + max_blocks - 1) / max_blocks;
  const std::int64_t blocks = (rows + block - 1) / block;
  prepare.workspace = static_cast<std::size_t>(blocks * columns) * sizeof(float);
  return make_kernel([&pool = prepare.pool, rows, columns, block, blocks](const Launch& call) {
    const T *dy = call.in<T>(0), *x = call.in<T>(1);
    const float *weight = call.in<float>(2), *rstd = call.in<float>(3);
    T* dx = call.out<T>(0);
    float* dweight = call.out<float>(1);
    auto* partial = static_cast<float*>(call.workspace);
    pool.run(blocks, [=](std::int64_t b) {
      float* sums = partial + b * columns;
      for (std::int64_t c = 0; c < columns; ++c) sums[c] = 0;
      for (std::int64_t r = b * block; r < std::min(rows, (b + 1) * block); ++r) {
        const T *dyr = dy + r * columns, *xr = x + r * columns;
        T* dxr = dx + r * columns;
        const float scale = rstd[r];
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t c = 0; c < columns; ++c) {
          const float product = load(&dyr[c]) * load(&xr[c]) * scale;
          sums[c] += product;
          dot += weight[c] * product;
        }
        const float mean = dot / static_cast<float>(columns);
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c)
          store(&dxr[c], scale * (weight[c] * load(&dyr[c]) - load(&xr[c]) * scale * mean));
      }
    });
    parallel_for(pool, columns, 256, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) dweight[c] = partial[c];
      for (std::int64_t b = 1; b < blocks; ++b)
        for (std::int64_t c = begin; c < end; ++c) dweight[c] += partial[b * columns + c];
    });
  });
}

}  // namespace

KernelPtr RmsNorm::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T>(prepare, eps); });
}

KernelPtr RmsNormGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[1].dtype, [&]<class T>() { return backward<T>(prepare); });
}

}  // namespace ridge
