#pragma once

#include <cstdint>

#include "ridge/cpu/activation.h"

namespace ridge {

// y[i] = silu(x[i]) for i in [0, n), off by some units in the last place of a float before it is
// rounded. For bf16, where the processor converts to it: off by 2^-12 of itself, a fraction of what
// rounding adds, or by 2^-119; in half the time.
template <class T>
void silu_rows(const float* x, std::int64_t n, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(&y[i], silu(x[i]));
}

#if defined(__AVX512BF16__)
template <>
void silu_rows(const float* x, std::int64_t n, BFloat16* y);
#endif

}  // namespace ridge
