#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"
#include "ridge/ops/softmax.h"

namespace ridge {
namespace {

// N elements of one row a thread; those beyond the diagonal are not read.
template <int N, class T, class Index>
__global__ void mask_kernel(Index packs, Index packs_per_row, float value, const T* x, T* y) {
  gpu::begin_kernel();
  const Index pack = gpu::thread_index<Index>();
  if (pack >= packs) return;
  const Index row = pack / packs_per_row;
  const Index query = row % (packs_per_row * N), key = pack % packs_per_row * N;
  float elements[N];
#pragma unroll
  for (int i = 0; i < N; ++i) elements[i] = value;
  if (key <= query) {
    gpu::load_pack<N>(x + pack * N, elements);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (key + i > query) elements[i] = value;
  }
  gpu::store_pack<N>(y + pack * N, elements);
}

template <class T>
KernelPtr mask(GpuPrepare& prepare, float value) {
  constexpr int N = gpu::elements_per_access<T>;
  const std::int64_t n = prepare.out[0].numel(), extent = prepare.out[0].shape[-1];
  return gpu::dispatch_index(n, [&]<class Index>() {
    return make_kernel([&gpu = prepare.gpu, n, extent, value](const Launch& call) {
      const T* x = call.in<T>(0);
      T* y = call.out<T>();
      const bool packed =
          extent % N == 0 && gpu::is_aligned(x, sizeof(T) * N) && gpu::is_aligned(y, sizeof(T) * N);
      const std::int64_t width = packed ? N : 1;
      gpu::launch(gpu, packed ? mask_kernel<N, T, Index> : mask_kernel<1, T, Index>,
                  dim3(gpu::blocks_for(n / width, gpu::elementwise_threads)),
                  dim3(gpu::elementwise_threads), 0, static_cast<Index>(n / width),
                  static_cast<Index>(extent / width), value, x, y);
    });
  });
}

}  // namespace

KernelPtr CausalMask::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype,
                                [&]<class T>() { return mask<T>(prepare, value); });
}

}  // namespace ridge
