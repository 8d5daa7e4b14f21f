#include "ridge/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

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

template <class T>
KernelPtr turn(CpuPrepare& prepare, double theta, bool inverse) {
  const Shape& shape = prepare.in[0].shape;
  const std::int64_t positions = shape[-2], pairs = shape[-1] / 2, rows = shape.rows();
  return make_kernel([&pool = prepare.pool, positions, pairs, rows, theta, inverse,
                      table = std::make_unique<Rotations>()](const Launch& call) {
    // At the first launch: a kernel that is prepared for its workspace alone costs no memory.
    if (table->cos.empty()) table->fill(positions, pairs, theta, inverse);
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    const float *cos = table->cos.data(), *sin = table->sin.data();
    parallel_for(pool, rows, rows_per_task(2 * pairs), [=](std::int64_t begin, std::int64_t end) {
      // Consecutive positions lie together in x and in the table: one loop up to the end of a
      // sequence instead of one a row, which may hold few pairs.
      for (std::int64_t r = begin, run = 0; r < end; r += run) {
        const std::int64_t s = r % positions;
        run = std::min(end - r, positions - s);
        rotate(x + r * 2 * pairs, y + r * 2 * pairs, cos + s * pairs, sin + s * pairs, run * pairs);
      }
    });
  });
}

}  // namespace

KernelPtr Rope::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return turn<T>(prepare, theta, inverse); });
}

}  // namespace ridge
