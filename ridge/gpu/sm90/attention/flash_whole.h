#pragma once

// Flash attention, forward, of sequences whose keys and values are in shared memory as a whole:
// without mask, as images are looked at, of 16-bit elements.

#include <cuda_runtime.h>

#include "ridge/gpu/kernels/attention/flash.h"

namespace ridge::gpu::sm90 {

inline constexpr int most_whole_keys = 256;

inline bool is_whole(const FlashShape& shape) {
  return !shape.causal && shape.seq > 2 * 64 && shape.seq <= most_whole_keys &&
         shape.head_dim <= 64;
}

// `operands` without rotation.
void forward_whole(const FlashShape& shape, const FlashOperands& operands, void* y, float* lse,
                   cudaStream_t stream);

}  // namespace ridge::gpu::sm90
