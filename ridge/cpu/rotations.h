#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "ridge/cpu/simd.h"

namespace ridge {

// cos and sin of the rotary embedding's angles s * theta^(-i / pairs), each [positions, pairs].
class Rotations {
 public:
  Rotations(float theta, std::int64_t pairs, std::int64_t positions)
      : theta_(theta), pairs_(pairs), positions_(positions) {}

  // Fills the table the first time, from the launching thread alone: a kernel that is prepared for
  // its workspace and never launched costs no memory.
  void fill();
  const float* cos() const { return cos_.data(); }
  const float* sin() const { return sin_.data(); }

 private:
  float theta_;
  std::int64_t pairs_, positions_;
  std::vector<float> cos_, sin_;
};

// The tables of one device: all kernels of the same angles share one, as long as one of them lives.
class RotationTables {
 public:
  std::shared_ptr<Rotations> get(float theta, std::int64_t pairs, std::int64_t positions);

 private:
  std::map<std::tuple<float, std::int64_t, std::int64_t>, std::weak_ptr<Rotations>> tables_;
};

// Rotates `pairs` consecutive pairs of x, whose cos and sin stand one after another; backwards
// with direction -1 instead of 1. y may be x.
template <class In, class Out>
void rotate(const In* x, Out* y, const float* cos, const float* sin, float direction,
            std::int64_t pairs) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float x0 = load(&x[2 * i]), x1 = load(&x[2 * i + 1]), turn = sin[i] * direction;
    store(&y[2 * i], x0 * cos[i] - x1 * turn);
    store(&y[2 * i + 1], x0 * turn + x1 * cos[i]);
  }
}

}  // namespace ridge
