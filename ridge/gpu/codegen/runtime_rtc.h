#pragma once

// Stands for gpu/device/runtime.h in kernels compiled at run time, which include it by that name
// and find no other header, neither the vendor's nor the standard library's. The program carries
// its text, and that of gpu/kernels/activation.h, which a generated kernel computes with.

namespace ridge {

struct BFloat16 {
  unsigned short bits;
};
struct Float16 {
  unsigned short bits;
};

namespace gpu {

// As in gpu/device/runtime.h.
__device__ inline void begin_kernel() {
#if !defined(__HIP__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A step of a chain rounds as it does alone: an addition never takes the product of the step before
// unrounded.
__device__ inline float add(float a, float b) {
#if defined(__HIP__)
#pragma clang fp contract(off)
  return a + b;
#else
  return __fadd_rn(a, b);
#endif
}
__device__ inline float multiply(float a, float b) {
#if defined(__HIP__)
#pragma clang fp contract(off)
  return a * b;
#else
  return __fmul_rn(a, b);
#endif
}

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(BFloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline float widened(Float16 x) {
#if defined(__HIP__)
  return static_cast<float>(__builtin_bit_cast(_Float16, x.bits));
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#endif
}

// To nearest, ties to even.
__device__ inline void round_to(float* p, float x) { *p = x; }
__device__ inline void round_to(Float16* p, float x) {
#if defined(__HIP__)
  p->bits = __builtin_bit_cast(unsigned short, static_cast<_Float16>(x));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
#endif
}
__device__ inline void round_to(BFloat16* p, float x) {
#if !defined(__HIP__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
#else
  const unsigned word = __float_as_uint(x);
  const unsigned rounded = word + 0x7FFFu + ((word >> 16) & 1u);
  const bool nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
  p->bits = static_cast<unsigned short>((nan ? word | 0x00400000u : rounded) >> 16);
#endif
}

// N consecutive elements, in accesses of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, class T>
__device__ inline void store_pack(T* p, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

}  // namespace gpu
}  // namespace ridge
