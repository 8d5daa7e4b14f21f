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

}  // namespace ridge
