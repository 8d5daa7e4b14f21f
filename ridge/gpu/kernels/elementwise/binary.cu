#include "ridge/ops/binary.h"

#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"

namespace ridge {
namespace {

using gpu::Nest;

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Times {
  __device__ float operator()(float a, float b) const { return a * b; }
};

struct Minus {
  __device__ float operator()(float a, float b) const { return a - b; }
};

struct Over {
  __device__ float operator()(float a, float b) const { return a / b; }
};

struct IsEqual {
  __device__ float operator()(float a, float b) const { return a == b ? 1.0f : 0.0f; }
};

// N consecutive elements of an operand, or N times the same one where it stands still.
template <int N, class T>
__device__ void load_run(const T* p, bool stands_still, float (&x)[N]) {
  if (!stands_still) return gpu::load_pack<N>(p, x);
  const float value = gpu::load(p);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = value;
}

// c = function(a, b), N elements a thread, all along the innermost loop.
template <int N, class T, class Index, class F>
__global__ void broadcast_kernel(Index packs, const __grid_constant__ Nest<Index> nest, F function,
                                 const T* a, const T* b, T* c) {
  gpu::begin_kernel();
  const Index pack = gpu::thread_index<Index>();
  if (pack >= packs) return;
  const auto offsets = gpu::offsets_at(nest, pack * N);
  float x[N], y[N], z[N];
  load_run(a + offsets.at[0], nest.stride[nest.loops - 1][0] == 0, x);
  load_run(b + offsets.at[1], nest.stride[nest.loops - 1][1] == 0, y);
#pragma unroll
  for (int i = 0; i < N; ++i) z[i] = function(x[i], y[i]);
  gpu::store_pack<N>(c + pack * N, z);
}

// Whether every run of N elements of the result is one run of each operand too, or one element.
bool runs_in_packs(const LoopNest& nest, std::int64_t N) {
  if (nest.back().extent % N != 0) return false;
  for (std::size_t l = 0; l + 1 < nest.size(); ++l)
    for (std::size_t operand = 0; operand < 2; ++operand)
      if (nest.back().strides[operand] == 1 && nest[l].strides[operand] % N != 0) return false;
  return true;
}

template <class T, class F>
KernelPtr broadcasting(GpuPrepare& prepare, F function) {
  constexpr int N = gpu::elements_per_access<T>;
  const std::int64_t n = prepare.out[0].numel();
  const LoopNest nest =
      broadcast_nest(prepare.out[0].shape, prepare.in[0].shape, prepare.in[1].shape);
  if (nest.empty() || (nest.size() == 1 && nest[0].strides == Offsets{1, 1}))
    return gpu::map_pairs<T>(prepare, function);
  const bool in_packs = runs_in_packs(nest, N);
  return gpu::dispatch_index(n, [&]<class Index>() {
    return make_kernel([&gpu = prepare.gpu, n, nest = Nest<Index>(nest), function, in_packs,
                        inner = nest.back().strides](const Launch& call) {
      const T *a = call.in<T>(0), *b = call.in<T>(1);
      T* c = call.out<T>();
      const bool packed = in_packs && gpu::is_aligned(c, sizeof(T) * N) &&
                          (inner[0] == 0 || gpu::is_aligned(a, sizeof(T) * N)) &&
                          (inner[1] == 0 || gpu::is_aligned(b, sizeof(T) * N));
      const std::int64_t packs = packed ? n / N : n;
      gpu::launch(gpu, packed ? broadcast_kernel<N, T, Index, F> : broadcast_kernel<1, T, Index, F>,
                  dim3(gpu::blocks_for(packs, gpu::elementwise_threads)),
                  dim3(gpu::elementwise_threads), 0, static_cast<Index>(packs), nest, function, a,
                  b, c);
    });
  });
}

}  // namespace

KernelPtr Add::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return broadcasting<T>(prepare, Plus{}); });
}

KernelPtr Mul::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return broadcasting<T>(prepare, Times{}); });
}

KernelPtr Arithmetic::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    switch (kind) {
      case ArithmeticKind::sub:
        return broadcasting<T>(prepare, Minus{});
      case ArithmeticKind::div:
        return broadcasting<T>(prepare, Over{});
      default:
        return broadcasting<T>(prepare, IsEqual{});
    }
  });
}

}  // namespace ridge
