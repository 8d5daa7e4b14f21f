#pragma once

// The part of HIP's runtime and language that the kernels use, for the machine of tests/simt.

#include "tests/simt/language.h"

using hipError_t = int;
struct ihipStream_t;
using hipStream_t = ihipStream_t*;
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize };

inline hipError_t hipGetLastError() { return 0; }

inline hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute, int bytes) {
  ridge::simt::allow_shared_memory(kernel, static_cast<std::size_t>(bytes));
  return 0;
}

template <class... Parameters, class... Arguments>
void hipLaunchKernelGGL(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                        std::size_t shared_bytes, hipStream_t, const Arguments&... arguments) {
  ridge::simt::launch_kernel<Parameters...>(kernel, blocks, threads, shared_bytes,
                                            static_cast<Parameters>(arguments)...);
}

template <class T>
T __shfl_xor(T value, int mask, int, ridge::simt::Site site = ridge::simt::Site::current()) {
  return ridge::simt::exchange_value(ridge::simt::Exchange::shuffle_xor, value, mask, site);
}
template <class T>
T __shfl(T value, int lane, int, ridge::simt::Site site = ridge::simt::Site::current()) {
  return ridge::simt::exchange_value(ridge::simt::Exchange::shuffle, value, lane, site);
}
inline unsigned long long __ballot(bool x, ridge::simt::Site site = ridge::simt::Site::current()) {
  return ridge::simt::exchange(ridge::simt::Exchange::ballot, x ? 1 : 0, 0, site);
}

inline void __builtin_amdgcn_fence(int, const char*) {}
inline void __builtin_amdgcn_wave_barrier(ridge::simt::Site site = ridge::simt::Site::current()) {
  ridge::simt::exchange(ridge::simt::Exchange::barrier, 0, 0, site);
}
