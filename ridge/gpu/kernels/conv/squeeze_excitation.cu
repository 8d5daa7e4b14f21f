#include "ridge/ops/squeeze_excitation.h"

#include <algorithm>

#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge {
namespace {

using namespace gpu;

constexpr int threads = 1024, warps = threads / warp_width;

struct Sizes {
  int channels, squeezed;
};

// The product of N weights of a row with what is in shared memory.
template <int N, class T>
__device__ float dot(const Pack<T, N>& w, const float* x) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) sum += load(&w.at[k]) * x[k];
  return sum;
}

// One image a block: its means are read once, and what is inside stays in shared memory. First a
// warp takes two rows of w1 at a time. Then threads go down columns of w2, N each, which a whole
// number of groups share: a group takes each so many-th row, and their sums are added in order.
template <int N, class T, class Inner, class Gate>
__global__ void __launch_bounds__(threads)
    squeeze_kernel(Sizes size, int groups, const T* x, const T* w1, const T* b1, const T* w2,
                   const T* b2, T* y) {
  begin_kernel();
  float *row = dynamic_shared<float>(), *inside = row + size.channels,
        *sums = inside + size.squeezed;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % warp_width, warp = thread / warp_width;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * size.channels;
  for (int c = thread; c < size.channels; c += threads) row[c] = load(&x[first + c]);
  __syncthreads();
  for (int s = warp; s < size.squeezed; s += 2 * warps) {
    const int other = min(s + warps, size.squeezed - 1);
    const T* a = w1 + static_cast<std::int64_t>(s) * size.channels;
    const T* b = w1 + static_cast<std::int64_t>(other) * size.channels;
    float sum_a = 0, sum_b = 0;
#pragma unroll 4
    for (int c = lane * N; c < size.channels; c += warp_width * N) {
      sum_a += dot(*reinterpret_cast<const Pack<T, N>*>(a + c), row + c);
      sum_b += dot(*reinterpret_cast<const Pack<T, N>*>(b + c), row + c);
    }
    sum_a = reduce_warp<Sum>(sum_a);
    sum_b = reduce_warp<Sum>(sum_b);
    if (lane == 0) {
      inside[s] = Inner()(sum_a + load(&b1[s]));
      if (s + warps < size.squeezed) inside[other] = Inner()(sum_b + load(&b1[other]));
    }
  }
  __syncthreads();
  const int packs = size.channels / N, group = thread / packs;
  for (int p = thread - group * packs; p < packs && group < groups; p += threads) {
    float sum[N] = {};
#pragma unroll 8
    for (int s = group; s < size.squeezed; s += groups) {
      float w[N];
      load_pack<N>(w2 + static_cast<std::int64_t>(s) * size.channels + p * N, w);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += w[k] * inside[s];
    }
#pragma unroll
    for (int k = 0; k < N; ++k) sums[group * size.channels + p * N + k] = sum[k];
  }
  __syncthreads();
  for (int c = thread; c < size.channels; c += threads) {
    float sum = load(&b2[c]);
    for (int t = 0; t < groups; ++t) sum += sums[t * size.channels + c];
    store(&y[first + c], Gate()(sum));
  }
}

template <class T, class Inner, class Gate>
KernelPtr squeeze(GpuPrepare& prepare) {
  constexpr int wide = elements_per_access<T>;
  static constexpr SqueezeExcitation::Operands at = SqueezeExcitation::operands();
  const std::int64_t images = prepare.in[at.x].shape[0];
  const Sizes size{static_cast<int>(prepare.in[at.x].shape[1]),
                   static_cast<int>(prepare.in[at.w1].shape[0])};
  for (const auto kernel :
       {squeeze_kernel<1, T, Inner, Gate>, squeeze_kernel<wide, T, Inner, Gate>})
    allow_shared_memory(kernel, prepare.gpu.card.shared_per_block);
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    const T *w1 = call.in<T>(at.w1), *w2 = call.in<T>(at.w2);
    dispatch_packed<wide>(rows_are_packable<wide>(size.channels, w1, w2), [&]<int N>() {
      constexpr int most_groups = 8;
      const int groups = std::clamp(threads / (size.channels / N), 1, most_groups);
      const std::size_t floats = static_cast<std::size_t>(size.channels) * (1 + groups) +
                                 static_cast<std::size_t>(size.squeezed);
      launch(gpu, squeeze_kernel<N, T, Inner, Gate>, dim3(static_cast<unsigned>(images)),
             dim3(threads), floats * sizeof(float), size, groups, call.in<T>(at.x), w1,
             call.in<T>(at.b1), w2, call.in<T>(at.b2), call.out<T>());
    });
  });
}

}  // namespace

KernelPtr SqueezeExcitation::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    const auto with = [&]<class Inner>() {
      return gate == ActivationKind::sigmoid ? squeeze<T, Inner, SigmoidOf>(prepare)
                                             : squeeze<T, Inner, HardSigmoidOf>(prepare);
    };
    return inner == Epilogue::relu ? with.template operator()<ReluOf>()
                                   : with.template operator()<SiluOf>();
  });
}

}  // namespace ridge
