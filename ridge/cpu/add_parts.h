#pragma once

#include <cstdint>

#include "ridge/base/thread_pool.h"
#include "ridge/cpu/simd.h"

namespace ridge {

// to[i] += parts[p * step + i] for all i < n, by rising p < count: the bits are the same on any
// number of threads.
inline void add_parts(ThreadPool& pool, const float* parts, std::int64_t step, std::int64_t count,
                      std::int64_t n, float* to) {
  parallel_for(pool, n, 8192, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = 0; p < count; ++p) {
      const float* const part = parts + p * step;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) to[i] += part[i];
    }
  });
}

}  // namespace ridge
