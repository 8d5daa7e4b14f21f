#pragma once

// The rotary embedding's angles, and the loop that turns pairs by them.

#include <cmath>
#include <cstdint>
#include <vector>

#include "ridge/cpu/simd.h"

namespace ridge {

// cos and sin of every position and pair, each [positions, pairs]: in double and then rounded,
// because a float angle of thousands of radians would be off by as much as 1e-4.
struct Rotations {
  std::vector<float> cos, sin;

  void fill(std::int64_t positions, std::int64_t pairs, double theta, bool inverse) {
    std::vector<double> frequency;
    for (std::int64_t i = 0; i < pairs; ++i)
      frequency.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs)));
    cos.reserve(static_cast<std::size_t>(positions * pairs));
    sin.reserve(static_cast<std::size_t>(positions * pairs));
    for (std::int64_t s = 0; s < positions; ++s)
      for (const double f : frequency) {
        const double angle = static_cast<double>(s) * f;
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(inverse ? -std::sin(angle) : std::sin(angle)));
      }
  }
};

template <class T>
void rotate(const T* __restrict x, T* __restrict y, const float* cos, const float* sin,
            std::int64_t pairs) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float x0 = load(&x[2 * i]), x1 = load(&x[2 * i + 1]);
    store(&y[2 * i], x0 * cos[i] - x1 * sin[i]);
    store(&y[2 * i + 1], x0 * sin[i] + x1 * cos[i]);
  }
}

}  // namespace ridge
