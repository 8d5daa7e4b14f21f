#include "ridge/ops/dropout.h"

#include <algorithm>

#include "ridge/base/philox.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

// Blocks [first, first + count) share their numbers' words; each is dropped, or scaled.
template <class T>
KernelPtr drop(CpuPrepare& prepare, const Dropout& op) {
  const std::int64_t blocks = prepare.in[0].numel() / op.block;
  return make_kernel([&pool = prepare.pool, op, blocks](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    const auto step =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(*call.in<std::int32_t>(1)));
    const std::int64_t grain = std::max<std::int64_t>(4, elements_per_task / op.block);
    parallel_for(pool, blocks, grain, [=](std::int64_t begin, std::int64_t end) {
      constexpr std::int64_t together = 256;
      float factor[together];
      for (std::int64_t first = begin; first < end; first += together) {
        const std::int64_t count = std::min(together, end - first);
        for (std::int64_t b = 0; b < count;) {
          const auto number = static_cast<std::uint64_t>(op.first + first + b);
          const auto words = philox(op.seed, number / 4, step);
          for (std::size_t k = number % 4; k < 4 && b < count; ++k, ++b)
            factor[b] = words[k] >= op.threshold() ? op.scale() : 0.0f;
        }
        const T* from = x + first * op.block;
        T* to = y + first * op.block;
        if (op.block == 1) {
#pragma omp simd
          for (std::int64_t b = 0; b < count; ++b)
            store(&to[b], factor[b] == 0.0f ? 0.0f : load(&from[b]) * factor[b]);
          continue;
        }
        for (std::int64_t b = 0; b < count; ++b, from += op.block, to += op.block)
          if (factor[b] == 0.0f) {
            std::fill_n(to, op.block, T(0.0f));
          } else {
#pragma omp simd
            for (std::int64_t i = 0; i < op.block; ++i) store(&to[i], load(&from[i]) * factor[b]);
          }
      }
    });
  });
}

}  // namespace

KernelPtr Dropout::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return drop<T>(prepare, *this); });
}

}  // namespace ridge
