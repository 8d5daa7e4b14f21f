#pragma once

// Kernels that compute each element of a dense result from the same element of the operands.

#include <algorithm>
#include <cstdint>

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {

inline constexpr int elementwise_threads = 256;

// Elements that a thread takes in one access: 16 bytes of the widest type.
template <class... T>
inline constexpr int elements_per_access = static_cast<int>(16 / std::max({sizeof(T)...}));

// The packs come by value: each is read in one access, and all before the first is used.
template <int N, class F, class Out, class... In>
__device__ void map_packs(F function, Out* y, Pack<In, N>... x) {
  float result[N];
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = function(load(&x.at[i])...);
  store_pack<N>(y, result);
}

// y[i] = function(x[i]...) for all i < n, N elements a thread; in packs if all operands are aligned
// to them.
template <int N, class F, class Out, class... In>
__global__ void map_kernel(std::int64_t n, bool packed, F function, Out* y, const In*... x) {
  begin_kernel();
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t first = thread * N, end = std::min(first + N, n);
  if (packed && first + N <= n) {
    map_packs<N>(function, y + first, *reinterpret_cast<const Pack<In, N>*>(x + first)...);
  } else {
    for (std::int64_t i = first; i < end; ++i) store(&y[i], function(load(&x[i])...));
  }
}

template <class F, class Out, class... In>
void map(const Context& gpu, std::int64_t n, F function, Out* y, const In*... x) {
  constexpr int N = elements_per_access<Out, In...>;
  if (n == 0) return;
  const bool packed = is_aligned(y, N * sizeof(Out)) && (is_aligned(x, N * sizeof(In)) && ...);
  launch(gpu, map_kernel<N, F, Out, In...>,
         dim3(blocks_for(n, std::int64_t{elementwise_threads} * N)), dim3(elementwise_threads), 0,
         n, packed, function, y, x...);
}

// y[i] = function(x[i]), with function from float to float.
template <class In, class Out, class F>
KernelPtr map_elements(GpuPrepare& prepare, F function) {
  const std::int64_t n = prepare.out[0].numel();
  return make_kernel([&gpu = prepare.gpu, n, function](const Launch& call) {
    map(gpu, n, function, call.out<Out>(), call.in<In>(0));
  });
}

// The same where y is of x's floating dtype.
template <class F>
KernelPtr map_elements(GpuPrepare& prepare, F function) {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return map_elements<T, T>(prepare, function); });
}

// y[i] = function(a[i], b[i]), with all three of one type.
template <class T, class F>
KernelPtr map_pairs(GpuPrepare& prepare, F function) {
  const std::int64_t n = prepare.out[0].numel();
  return make_kernel([&gpu = prepare.gpu, n, function](const Launch& call) {
    map(gpu, n, function, call.out<T>(), call.in<T>(0), call.in<T>(1));
  });
}

// The same where that is a's floating dtype.
template <class F>
KernelPtr map_pairs(GpuPrepare& prepare, F function) {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return map_pairs<T>(prepare, function); });
}

}  // namespace ridge::gpu
