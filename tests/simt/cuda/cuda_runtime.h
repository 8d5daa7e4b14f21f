#pragma once

// The part of CUDA's runtime and language that the kernels use, for the machine of tests/simt.

#include "tests/simt/language.h"

// Lets begin_kernel() wait for the launches before, as it must on the cards that launch early.
#define __CUDA_ARCH__ 900

#define __grid_constant__

using cudaError_t = int;
struct CUstream_st;
using cudaStream_t = CUstream_st*;

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttributeValue {
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

inline cudaError_t cudaGetLastError() { return 0; }

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  ridge::simt::launch_kernel<Parameters...>(kernel, config->gridDim, config->blockDim,
                                            config->dynamicSmemBytes, arguments...);
  return 0;
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int bytes) {
  ridge::simt::allow_shared_memory(reinterpret_cast<const void*>(kernel),
                                   static_cast<std::size_t>(bytes));
  return 0;
}

inline void cudaGridDependencySynchronize() { ridge::simt::wait_for_launches_before(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask,
                  ridge::simt::Site site = ridge::simt::Site::current()) {
  return ridge::simt::exchange_value(ridge::simt::Exchange::shuffle_xor, value, mask, site);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane, ridge::simt::Site site = ridge::simt::Site::current()) {
  return ridge::simt::exchange_value(ridge::simt::Exchange::shuffle, value, lane, site);
}
inline unsigned __ballot_sync(unsigned, bool x,
                              ridge::simt::Site site = ridge::simt::Site::current()) {
  return static_cast<unsigned>(
      ridge::simt::exchange(ridge::simt::Exchange::ballot, x ? 1 : 0, 0, site));
}
inline void __syncwarp(ridge::simt::Site site = ridge::simt::Site::current()) {
  ridge::simt::exchange(ridge::simt::Exchange::barrier, 0, 0, site);
}
