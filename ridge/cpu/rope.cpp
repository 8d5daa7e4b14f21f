#include "ridge/ops/rope.h"

#include <algorithm>

#include "ridge/cpu/prepare.h"
#include "ridge/cpu/rotations.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

template <class T>
KernelPtr turn(CpuPrepare& prepare, float theta, float direction) {
  const Shape& shape = prepare.in[0].shape;
  const std::int64_t positions = shape[-2], pairs = shape[-1] / 2, rows = shape.rows();
  return make_kernel([&pool = prepare.pool, positions, pairs, rows, direction,
                      table = prepare.rotations.get(theta, pairs, positions)](const Launch& call) {
    table->fill();
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    const float *cos = table->cos(), *sin = table->sin();
    parallel_for(pool, rows, rows_per_task(2 * pairs), [=](std::int64_t begin, std::int64_t end) {
      // Consecutive positions lie together in x and in the table: one loop up to the end of a
      // sequence instead of one a row, which may hold few pairs.
      for (std::int64_t r = begin, run = 0; r < end; r += run) {
        const std::int64_t s = r % positions;
        run = std::min(end - r, positions - s);
        rotate(x + r * 2 * pairs, y + r * 2 * pairs, cos + s * pairs, sin + s * pairs, direction,
               run * pairs);
      }
    });
  });
}

}  // namespace

KernelPtr Rope::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return turn<T>(prepare, theta, inverse ? -1.0f : 1.0f);
  });
}

}  // namespace ridge
