#pragma once

#include <cuda_runtime.h>

namespace ridge::gpu::sm90 {

// Launches a kernel that may begin while the one before it in the stream still runs: it must call
// wait_for_previous() before it touches what that one writes, and may use until then only what was
// there before that one began. `cluster` neighboring blocks run side by side and may read each
// other's shared memory. The caller checks last_error().
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, unsigned cluster, int threads,
                  std::size_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, int threads, std::size_t shared_bytes,
                  cudaStream_t stream, const Arguments&... arguments) {
  launch_early(kernel, blocks, 1, threads, shared_bytes, stream, arguments...);
}

// In a kernel launched early: returns when all that the kernel before wrote can be read.
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the kernel after, if launched early, begin on multiprocessors as they fall free.
__device__ inline void let_next_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace ridge::gpu::sm90
