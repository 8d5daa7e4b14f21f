#pragma once

#include <cstdint>

namespace ridge {

// The sum of the products of two rows of n elements, as four sums, which a processor adds at once.
inline double dot(const double* a, const double* b, std::int64_t n) {
  double sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int s = 0; s < 4; ++s) sums[s] += a[i + s] * b[i + s];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace ridge
