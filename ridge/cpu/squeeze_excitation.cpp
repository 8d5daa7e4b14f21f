#include "ridge/ops/squeeze_excitation.h"

#include <algorithm>

#include "ridge/cpu/activation.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

// Channels that are summed at once: of many, one after the other, the sum would lose digits.
constexpr std::int64_t piece = 256;

// y[n, s] = function(b[s] + sum over c of w[s, c] * x[n, c])
template <class T, class F>
void squeeze(ThreadPool& pool, std::int64_t images, std::int64_t squeezed, std::int64_t channels,
             const T* x, const T* w, const T* b, float* y, const F& function) {
  const auto some = [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t s = i % squeezed;
      const T *from = x + i / squeezed * channels, *weights = w + s * channels;
      float all = 0;
      for (std::int64_t first = 0; first < channels; first += piece) {
        const std::int64_t end_of_piece = std::min(first + piece, channels);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = first; c < end_of_piece; ++c)
          sum += load(&weights[c]) * load(&from[c]);
        all += sum;
      }
      y[i] = function(all + load(&b[s]));
    }
  };
  parallel_for(pool, images * squeezed, rows_per_task(channels), some);
}

// y[n, c] = function(b[c] + sum over s of w[s, c] * x[n, s])
template <class T, class F>
void excite(ThreadPool& pool, std::int64_t images, std::int64_t squeezed, std::int64_t channels,
            const float* x, const T* w, const T* b, T* y, const F& function) {
  const std::int64_t pieces = (channels + piece - 1) / piece;
  const auto some = [=](std::int64_t begin, std::int64_t end) {
    float sums[piece];
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / pieces, first = i % pieces * piece;
      const std::int64_t length = std::min(piece, channels - first);
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) sums[c] = load(&b[first + c]);
      for (std::int64_t s = 0; s < squeezed; ++s) {
        const float inside = x[n * squeezed + s];
        const T* weights = w + s * channels + first;
#pragma omp simd
        for (std::int64_t c = 0; c < length; ++c) sums[c] += inside * load(&weights[c]);
      }
      T* to = y + n * channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) store(&to[c], function(sums[c]));
    }
  };
  parallel_for(pool, images * pieces, rows_per_task(piece * squeezed), some);
}

}  // namespace

KernelPtr SqueezeExcitation::cpu(CpuPrepare& prepare) const {
  static constexpr Operands at = operands();
  const std::int64_t images = prepare.in[at.x].shape[0], channels = prepare.in[at.x].shape[1];
  const std::int64_t squeezed = prepare.in[at.w1].shape[0];
  prepare.workspace = static_cast<std::size_t>(images * squeezed) * sizeof(float);
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return make_kernel(
        [&pool = prepare.pool, images, channels, squeezed, op = *this](const Launch& call) {
          auto* inside = static_cast<float*>(call.workspace);
          const auto inside_by = [&](const auto& function) {
            squeeze(pool, images, squeezed, channels, call.in<T>(at.x), call.in<T>(at.w1),
                    call.in<T>(at.b1), inside, function);
          };
          if (op.inner == Epilogue::relu)
            inside_by([](float x) { return x < 0.0f ? 0.0f : x; });
          else
            inside_by([](float x) { return silu(x); });
          with_activation(op.gate, [&](const auto& function) {
            excite(pool, images, squeezed, channels, inside, call.in<T>(at.w2), call.in<T>(at.b2),
                   call.out<T>(), function);
          });
        });
  });
}

}  // namespace ridge
