#pragma once

// Kernels are written once, in the part of the language that nvcc and hipcc both compile: here is
// what the two call by different names, and the little that all kernels share.
#if defined(__HIP_PLATFORM_NVIDIA__)
#include "ridge/gpu/device/hip_on_nvidia.h"
#elif defined(__HIP__)
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include <cstdint>
#include <type_traits>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

#if defined(__HIP__)
// Marks a kernel's parameter that may be indexed where it is; here all may.
#define __grid_constant__
inline constexpr int warp_width = RIDGE_WARP_WIDTH;  // 64 of gfx9, 32 of those after it
inline int last_error() { return static_cast<int>(hipGetLastError()); }
#else
inline constexpr int warp_width = 32;
inline int last_error() { return static_cast<int>(cudaGetLastError()); }
#endif

// Enqueues a kernel of plain arguments and checks that the launch was taken. With `early` its
// blocks take their places while the kernel before is still at work, which hides what a launch
// costs; so the kernel must call begin_kernel() first of all.
template <class... Parameters, class... Arguments>
void launch_on(Stream stream, [[maybe_unused]] bool early, void (*kernel)(Parameters...), dim3 grid,
               dim3 block, std::size_t shared_bytes, const Arguments&... arguments) {
#if defined(__HIP__) || defined(__HIP_PLATFORM_NVIDIA__)
  hipLaunchKernelGGL(kernel, grid, block, shared_bytes, stream, arguments...);
#else
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
#endif
  check(last_error(), "launching a kernel");
}

// The same, early where the card can.
template <class... Parameters, class... Arguments>
void launch(const Context& gpu, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared_bytes, const Arguments&... arguments) {
  launch_on(gpu.stream, gpu.card.launches_early(), kernel, grid, block, shared_bytes, arguments...);
}

// The shared memory a block may ask for beyond 48 KiB must be granted to each kernel once.
template <class... Parameters>
void allow_shared_memory(void (*kernel)(Parameters...), std::size_t bytes) {
#if defined(__HIP__) || defined(__HIP_PLATFORM_NVIDIA__)
  const auto status =
      hipFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                          hipFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
#else
  const auto status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(bytes));
#endif
  check(static_cast<int>(status), "reserving shared memory");
}

// Waits for all that was enqueued before, and lets the next kernel's blocks take their places.
__device__ inline void begin_kernel() {
#if !defined(__HIP__) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// The shared memory that a launch gives each block, aligned to 16 bytes.
template <class T>
__device__ inline T* dynamic_shared() {
  extern __shared__ uint4 dynamic_memory[];
  return reinterpret_cast<T*>(dynamic_memory);
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

__device__ inline float load(const float* p) { return *p; }
__device__ inline float load(const BFloat16* p) {
  return __uint_as_float(static_cast<std::uint32_t>(p->bits) << 16);
}
__device__ inline float load(const Float16* p) { return __half2float(__ushort_as_half(p->bits)); }
__device__ inline float load(const Int8* p) { return static_cast<float>(p->bits); }
__device__ inline void store(float* p, float x) { *p = x; }
__device__ inline void store(Float16* p, float x) {
  p->bits = __half_as_ushort(__float2half_rn(x));
}
__device__ inline void store(Int8* p, float x) {
  p->bits = static_cast<std::int8_t>(__float2int_rn(fminf(fmaxf(x, -127.0f), 127.0f)));
}
__device__ inline void store(BFloat16* p, float x) {
#if defined(__HIP__)
  const std::uint32_t word = __float_as_uint(x);
  const std::uint32_t rounded = word + 0x7FFFu + ((word >> 16) & 1u);
  const bool nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
  p->bits = static_cast<std::uint16_t>((nan ? word | 0x00400000u : rounded) >> 16);
#else
  p->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#endif
}

// One of the two 16-bit elements in a word: the low one, 0, or the high one, 1.
template <class T>
__device__ inline float half_of_word(std::uint32_t word, int which) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return __uint_as_float(which == 0 ? word << 16 : word & 0xFFFF0000u);
  } else {
    T element;
    element.bits = static_cast<std::uint16_t>(which == 0 ? word : word >> 16);
    return load(&element);
  }
}

// N consecutive elements that travel in one access; their address must be aligned to all of them.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <int N, class T>
__device__ inline void load_pack(const T* p, float (&x)[N]) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = load(&pack.at[i]);
}

template <int N, class T>
__device__ inline void store_pack(T* p, const float (&x)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) store(&pack.at[i], x[i]);
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

// A tensor that a kernel writes rounded to 16 bits beside another result; which of the two dtypes
// it has is known at run time only. Null: it is not wanted.
struct RoundedCopy {
  void* data = nullptr;
  bool is_f16 = false;  // else bf16

  RoundedCopy() = default;
  __host__ __device__ RoundedCopy(void* to, DType dtype) : data(to), is_f16(dtype == DType::f16) {}

  __device__ explicit operator bool() const { return data != nullptr; }
  // Calls f(pointer to the element at i).
  template <class F>
  __device__ void at(std::int64_t i, const F& f) const {
    if (is_f16)
      f(static_cast<Float16*>(data) + i);
    else
      f(static_cast<BFloat16*>(data) + i);
  }
};

// The value of the lane whose number differs by `mask`.
template <class T>
__device__ inline T shuffle_xor(T x, int mask) {
#if defined(__HIP__)
  return __shfl_xor(x, mask, warp_width);
#else
  return __shfl_xor_sync(0xFFFFFFFFu, x, mask);
#endif
}

// The value that a lane gives. All lanes must call it.
template <class T>
__device__ inline T shuffle(T x, int lane) {
#if defined(__HIP__)
  return __shfl(x, lane, warp_width);
#else
  return __shfl_sync(0xFFFFFFFFu, x, lane);
#endif
}

// A bit for each lane, the lowest for lane 0: the value of its x. All lanes must call it.
__device__ inline std::uint64_t ballot(bool x) {
#if defined(__HIP__)
  return __ballot(x);
#else
  return __ballot_sync(0xFFFFFFFFu, x);
#endif
}

// Orders the accesses of a warp's lanes to shared memory before and after it.
__device__ inline void sync_warp() {
#if defined(__HIP__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#else
  __syncwarp();
#endif
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// The combination of all lanes' values, in every lane; always in the same order.
template <class Combine, class T>
__device__ inline T reduce_warp(T x) {
#pragma unroll
  for (int mask = warp_width / 2; mask > 0; mask /= 2) x = Combine()(x, shuffle_xor(x, mask));
  return x;
}

// The combination of the values of all threads of a one-dimensional block, whose number is a
// multiple of the warp's, in every thread; always in the same order. All threads must call it.
template <class Combine, class T>
__device__ inline T reduce_block(T x) {
  __shared__ T partial[1024 / warp_width];
  const int lane = static_cast<int>(threadIdx.x) % warp_width;
  const int warp = static_cast<int>(threadIdx.x) / warp_width;
  const int warps = static_cast<int>(blockDim.x) / warp_width;
  x = reduce_warp<Combine>(x);
  if (warps == 1) return x;
  __syncthreads();  // the last use of `partial` is over
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  T all = partial[0];
  for (int w = 1; w < warps; ++w) all = Combine()(all, partial[w]);
  return all;
}

// Calls function.template operator()<T>() for the element type of a dtype of 16 bits.
template <class F>
auto dispatch_16_bit(DType dtype, const F& function) {
  if (dtype == DType::f16) return function.template operator()<Float16>();
  return function.template operator()<BFloat16>();
}

// The same for any floating dtype.
template <class F>
auto dispatch_floating(DType dtype, const F& function) {
  if (is_16_bit(dtype)) return dispatch_16_bit(dtype, function);
  return function.template operator()<float>();
}

// The same, or for s8, whose elements are rounded floats too.
template <class F>
auto dispatch_rounded(DType dtype, const F& function) {
  if (dtype == DType::s8) return function.template operator()<Int8>();
  return dispatch_floating(dtype, function);
}

// The same for two dtypes, which, if both are of 16 bits, are the same.
template <class F>
auto dispatch_floating(DType first, DType second, const F& function) {
  const auto call = [&]<class Narrow>() {
    if (first == DType::f32 && second == DType::f32)
      return function.template operator()<float, float>();
    if (first == DType::f32) return function.template operator()<float, Narrow>();
    if (second == DType::f32) return function.template operator()<Narrow, float>();
    return function.template operator()<Narrow, Narrow>();
  };
  return dispatch_16_bit(first == DType::f32 ? second : first, call);
}

}  // namespace ridge::gpu
