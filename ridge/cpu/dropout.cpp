#include "ridge/ops/dropout.h"

#include <algorithm>

#include "ridge/base/philox.h"
#include "ridge/cpu/elementwise.h"

namespace ridge {
namespace {

// The factors of so many blocks are drawn at once, four by a draw; the first may begin within one.
constexpr std::int64_t together = 256, most_draws = together / 4 + 1;

// philox(key, low + i, high) for i in [0, count), word k of them to words[4 i + k]: round by round
// for all of them, which vectorizes.
void philox_all(std::uint64_t key, std::uint64_t low, std::uint64_t high, std::int64_t count,
                std::uint32_t* words) {
  std::uint32_t c0[most_draws], c1[most_draws], c2[most_draws], c3[most_draws];
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t counter = low + static_cast<std::uint64_t>(i);
    c0[i] = static_cast<std::uint32_t>(counter);
    c1[i] = static_cast<std::uint32_t>(counter >> 32);
    c2[i] = static_cast<std::uint32_t>(high);
    c3[i] = static_cast<std::uint32_t>(high >> 32);
  }
  PhiloxKey round(key);
  for (int r = 0; r < philox_rounds; ++r, round.next()) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) philox_round(round, c0[i], c1[i], c2[i], c3[i]);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

// The factors of blocks [first, first + count): 0, or the scale.
void draw_factors(const Dropout& op, std::uint64_t first, std::uint64_t step, std::int64_t count,
                  float* factor) {
  std::uint32_t words[4 * most_draws];
  const auto lead = static_cast<std::int64_t>(first % 4);
  philox_all(op.seed, first / 4, step, (lead + count + 3) / 4, words);
  const std::uint32_t threshold = op.threshold();
  const float scale = op.scale();
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) factor[i] = words[lead + i] >= threshold ? scale : 0.0f;
}

// Each block is dropped, or scaled.
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
      float factor[together];
      for (std::int64_t first = begin; first < end; first += together) {
        const std::int64_t count = std::min(together, end - first);
        draw_factors(op, static_cast<std::uint64_t>(op.first + first), step, count, factor);
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
