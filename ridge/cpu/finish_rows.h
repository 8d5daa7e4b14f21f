#pragma once

#include "ridge/cpu/silu_rows.h"

namespace ridge {

// y[i] = what follows sums[i], with residual[i] added before, if there is one, for i in [0, n). The
// sums may lie in y.
template <class T>
void finish_rows(Epilogue epilogue, const float* sums, const T* residual, std::int64_t n, T* y) {
  if (epilogue == Epilogue::silu && !residual) return silu_rows(sums, n, y);
  with_epilogue(epilogue, [&](const auto& function) {
    if (residual)
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) store(&y[i], function(sums[i] + load(&residual[i])));
    else
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) store(&y[i], function(sums[i]));
  });
}

// One row of a tile of sums, of which y may be the same memory. Bias and residual may be null.
template <class T, class F>
void finish_row(const float* sums, const T* bias, const T* residual, T* y, std::int64_t columns,
                const F& function) {
  const auto row = [&](const auto& sum) {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) store(&y[j], function(sum(j)));
  };
  if (bias && residual)
    row([=](std::int64_t j) { return sums[j] + load(&bias[j]) + load(&residual[j]); });
  else if (bias)
    row([=](std::int64_t j) { return sums[j] + load(&bias[j]); });
  else if (residual)
    row([=](std::int64_t j) { return sums[j] + load(&residual[j]); });
  else
    row([=](std::int64_t j) { return sums[j]; });
}

}  // namespace ridge
