#include "ridge/ops/layer_norm.h"

#include <algorithm>
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
    const float *weight = call.in<float>(1), *bias = call.in<float>(2);
    T* y = call.out<T>(0);
    float *mean = call.out<float>(1), *rstd = call.out<float>(2);
    parallel_for(pool, rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
      const auto count = static_cast<float>(columns);
      for (std::int64_t r = begin; r < end; ++r) {
        const T* from = x + r * columns;
        T* to = y + r * columns;
        float sum = 0, rest = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = 0; c < columns; ++c) sum += load(&from[c]);
        // Only about the mean: what rounding left is found with the squares, and taken off apart.
        const float center = sum / count;
#pragma omp simd reduction(+ : rest, squares)
        for (std::int64_t c = 0; c < columns; ++c) {
          const float distance = load(&from[c]) - center;
          rest += distance;
          squares += distance * distance;
        }
        const float shift = rest / count;
        const float scale = 1.0f / std::sqrt(squares / count - shift * shift + eps);
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c)
          store(&to[c], (load(&from[c]) - center - shift) * scale * weight[c] + bias[c]);
        mean[r] = center + shift;
        rstd[r] = scale;
      }
    });
  });
}

// One row: adds its parts to dweight and dbias, and gives dx.
template <class T>
void grad_row(const T* dy, const T* x, const float* weight, float mean, float rstd, T* dx,
              float* dweight, float* dbias, std::int64_t columns) {
  float sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
  for (std::int64_t c = 0; c < columns; ++c) {
    const float xhat = (load(&x[c]) - mean) * rstd, g = weight[c] * load(&dy[c]);
    sum += g;
    products += g * xhat;
    dweight[c] += load(&dy[c]) * xhat;
    dbias[c] += load(&dy[c]);
  }
  const float mean_g = sum / static_cast<float>(columns);
  const float mean_product = products / static_cast<float>(columns);
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) {
    const float xhat = (load(&x[c]) - mean) * rstd;
    store(&dx[c], rstd * (weight[c] * load(&dy[c]) - mean_g - xhat * mean_product));
  }
}

// The sums over rows for dweight and dbias: blocks of rows whose number depends on the shape alone,
// each summed into its own rows of the workspace, then the blocks in order.
template <class T>
KernelPtr backward(CpuPrepare& prepare) {
  static constexpr LayerNormGrad::Operands operand = LayerNormGrad::operands();
  const Shape& shape = prepare.in[operand.x].shape;
  const std::int64_t columns = shape[-1], rows = shape.rows();
  const std::int64_t block = std::clamp<std::int64_t>((rows + 31) / 32, 1, 256);
  const std::int64_t blocks = (rows + block - 1) / block;
  prepare.workspace = static_cast<std::size_t>(2 * blocks * columns) * sizeof(float);
  return make_kernel([=, &pool = prepare.pool](const Launch& call) {
    const T *dy = call.in<T>(operand.dy), *x = call.in<T>(operand.x);
    const float* weight = call.in<float>(operand.weight);
    const float *mean = call.in<float>(operand.mean), *rstd = call.in<float>(operand.rstd);
    T* dx = call.out<T>(0);
    auto* partial = static_cast<float*>(call.workspace);
    pool.run(blocks, [=](std::int64_t b) {
      float *dweight = partial + 2 * b * columns, *dbias = dweight + columns;
      std::fill_n(dweight, 2 * columns, 0.0f);
      for (std::int64_t r = b * block; r < std::min(rows, (b + 1) * block); ++r)
        grad_row(dy + r * columns, x + r * columns, weight, mean[r], rstd[r], dx + r * columns,
                 dweight, dbias, columns);
    });
    float* const sums[] = {call.out<float>(1), call.out<float>(2)};
    for (std::int64_t s = 0; s < 2; ++s)
      parallel_for(pool, columns, 256, [=, sum = sums[s]](std::int64_t begin, std::int64_t end) {
        std::fill(sum + begin, sum + end, 0.0f);
        for (std::int64_t b = 0; b < blocks; ++b) {
          const float* part = partial + (2 * b + s) * columns;
#pragma omp simd
          for (std::int64_t c = begin; c < end; ++c) sum[c] += part[c];
        }
      });
  });
}

}  // namespace

KernelPtr LayerNorm::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T>(prepare, eps); });
}

KernelPtr LayerNormGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return backward<T>(prepare); });
}

}  // namespace ridge
