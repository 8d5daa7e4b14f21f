#pragma once

// HIP's runtime on NVIDIA's cards, where each of its functions calls CUDA's of the same name. The
// headers of HIP 5.2, which Debian 12 has, mention what CUDA 13 has removed or changed since;
// nothing of that is called here, but all of it must compile. So this header brings it back before
// they are read: functions with their old parameters, or ones that refuse, and fields.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>

inline cudaError_t cudaMemAdvise(const void* memory, std::size_t bytes, cudaMemoryAdvise advice,
                                 int device) {
  return cudaMemAdvise(memory, bytes, advice, cudaMemLocation{cudaMemLocationTypeDevice, device});
}
inline cudaError_t cudaMemPrefetchAsync(const void* memory, std::size_t bytes, int device,
                                        cudaStream_t stream) {
  return cudaMemPrefetchAsync(memory, bytes, cudaMemLocation{cudaMemLocationTypeDevice, device}, 0,
                              stream);
}
inline CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return cuCtxCreate(context, nullptr, flags, device);
}
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                            const cudaGraphNode_t* to, std::size_t count) {
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
}
inline cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                               const cudaGraphNode_t* to, std::size_t count) {
  return cudaGraphRemoveDependencies(graph, from, to, nullptr, count);
}
inline cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                     std::size_t* count) {
  return cudaGraphGetEdges(graph, from, to, nullptr, count);
}
inline cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                std::size_t* count) {
  return cudaGraphNodeGetDependencies(node, nodes, nullptr, count);
}
inline cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                                  std::size_t* count) {
  return cudaGraphNodeGetDependentNodes(node, nodes, nullptr, count);
}
inline cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                       std::size_t count, unsigned flags) {
  return cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, flags);
}
template <class... Any>
cudaError_t cudaBindTexture(Any...) {
  return cudaErrorNotSupported;
}
template <class... Any>
cudaError_t cudaBindTexture2D(Any...) {
  return cudaErrorNotSupported;
}
template <class... Any>
cudaError_t cudaBindTextureToArray(Any...) {
  return cudaErrorNotSupported;
}
template <class... Any>
cudaError_t cudaUnbindTexture(Any...) {
  return cudaErrorNotSupported;
}
template <class... Any>
cudaError_t cudaGetTextureAlignmentOffset(Any...) {
  return cudaErrorNotSupported;
}
template <class... Any>
cudaError_t cudaLaunchCooperativeKernelMultiDevice(Any...) {
  return cudaErrorNotSupported;
}
template <class... Any>
cudaError_t cudaStreamGetCaptureInfo_v2(Any...) {
  return cudaErrorNotSupported;
}
template <class T, int dimensions, cudaTextureReadMode mode>
struct texture;
struct PropertiesOfCuda12 : cudaDeviceProp {
  int clockRate, memoryClockRate, computeMode, kernelExecTimeoutEnabled,
      cooperativeMultiDeviceLaunch;
};

#define cudaDeviceProp PropertiesOfCuda12
#define cudaDevAttrCooperativeMultiDeviceLaunch cudaDevAttrCooperativeLaunch
#if defined(__CUDACC__)
#include <hip/hip_runtime.h>
#else
// Graphs are declared for nvcc alone, which has this function from its own headers.
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphNode_t*,
                                       cudaGraphExecUpdateResult*) {
  return cudaErrorNotSupported;
}
#define __CUDACC__
#include <hip/hip_runtime_api.h>
#undef __CUDACC__
#endif
#undef cudaDeviceProp
#undef cudaDevAttrCooperativeMultiDeviceLaunch
