#include "ridge/ops/reduce_all.h"

#include <algorithm>

#include "ridge/base/reductions.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge {
namespace {

using namespace gpu;

constexpr int threads = 256;

// What all threads of a block know, each part after those of lower threads, in thread 0.
template <class State>
__device__ State merge_block(State state) {
  alignas(State) __shared__ unsigned char memory[threads * sizeof(State)];  // not initialized
  auto* const states = reinterpret_cast<State*>(memory);
  states[threadIdx.x] = state;
  for (int distance = 1; distance < threads; distance *= 2) {
    __syncthreads();
    const int other = static_cast<int>(threadIdx.x) + distance;
    if (threadIdx.x % (2 * distance) == 0 && other < threads)
      states[threadIdx.x].merge(states[other]);
  }
  return threadIdx.x == 0 ? states[0] : state;
}

// The elements of a pack, of which the first is number `at` of all.
template <class State, int N, class T>
__device__ void take_pack(State& state, const Pack<T, N>& pack, std::int64_t at) {
#pragma unroll
  for (int i = 0; i < N; ++i) state.add(load(&pack.at[i]), at + i);
}

// As a part that is joined, which divides once.
template <int N, class T>
__device__ void take_pack(VarianceOf& state, const Pack<T, N>& pack, std::int64_t) {
  VarianceOf part{N};
#pragma unroll
  for (int i = 0; i < N; ++i) part.mean += load(&pack.at[i]);
  part.mean *= 1.0f / N;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float off = load(&pack.at[i]) - part.mean;
    part.squares += off * off;
  }
  state.merge(part);
}

// Each thread takes packs of N, two in flight, all threads of the grid side by side; those of the
// last, incomplete pack one by one.
template <class State, int N, class T>
__global__ void __launch_bounds__(threads)
    reduce_kernel(std::int64_t n, const T* x, State* states) {
  begin_kernel();
  const std::int64_t packs = n / N, all = static_cast<std::int64_t>(gridDim.x) * threads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  State state;
  const auto* from = reinterpret_cast<const Pack<T, N>*>(x);
  for (std::int64_t p = thread; p < packs; p += 2 * all) {
    const Pack<T, N> first = from[p];
    if (p + all < packs) {
      const Pack<T, N> second = from[p + all];
      take_pack(state, first, p * N);
      take_pack(state, second, (p + all) * N);
    } else {
      take_pack(state, first, p * N);
    }
  }
  if (const std::int64_t i = packs * N + thread; i < n) state.add(load(&x[i]), i);
  state = merge_block(state);
  if (threadIdx.x == 0) states[blockIdx.x] = state;
}

// Writes the value, its root, or, if wanted, the place.
enum class Result { value, root, place };

template <Result result, class State, class Out>
__global__ void __launch_bounds__(threads)
    finish_kernel(std::int64_t n, int blocks, const State* states, Out* y) {
  begin_kernel();
  State state;
  const int each = (blocks + threads - 1) / threads, begin = static_cast<int>(threadIdx.x) * each;
  for (int b = begin; b < min(blocks, begin + each); ++b) state.merge(states[b]);
  state = merge_block(state);
  if (threadIdx.x != 0) return;
  if constexpr (result == Result::place)
    *y = static_cast<Out>(state.index);
  else
    store(y, result == Result::root ? sqrtf(state.value(n)) : state.value(n));
}

template <Result result, class T, class State>
KernelPtr reduce(GpuPrepare& prepare) {
  using Out = std::conditional_t<result == Result::place, std::int32_t, T>;
  constexpr int N = elements_per_access<T>;
  const std::int64_t n = prepare.in[0].numel();
  const int blocks = static_cast<int>(std::min<std::int64_t>((n + threads * N - 1) / (threads * N),
                                                             8 * prepare.gpu.card.multiprocessors));
  prepare.workspace = static_cast<std::size_t>(blocks) * sizeof(State);
  return make_kernel([&gpu = prepare.gpu, n, blocks](const Launch& call) {
    const T* x = call.in<T>(0);
    auto* states = static_cast<State*>(call.workspace);
    const bool packed = is_aligned(x, N * sizeof(T));
    launch(gpu, packed ? reduce_kernel<State, N, T> : reduce_kernel<State, 1, T>,
           dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, n, x, states);
    launch(gpu, finish_kernel<result, State, Out>, dim3(1), dim3(threads), 0, n, blocks,
           static_cast<const State*>(states), call.out<Out>());
  });
}

}  // namespace

KernelPtr ReduceAll::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() -> KernelPtr {
    switch (kind) {
      case Reduction::mean:
        return reduce<Result::value, T, MeanOf>(prepare);
      case Reduction::prod:
        return reduce<Result::value, T, ProductOf>(prepare);
      case Reduction::norm:
        return reduce<Result::root, T, SquaredNormOf>(prepare);
      case Reduction::max:
        return reduce<Result::value, T, LargestOf>(prepare);
      case Reduction::std:
        return reduce<Result::root, T, VarianceOf>(prepare);
      case Reduction::var:
        return reduce<Result::value, T, VarianceOf>(prepare);
      case Reduction::absmax:
        return reduce<Result::value, T, LargestMagnitudeOf>(prepare);
      case Reduction::argmax:
        return reduce<Result::place, T, LargestOf>(prepare);
      default:
        return reduce<Result::place, T, SmallestOf>(prepare);
    }
  });
}

}  // namespace ridge
