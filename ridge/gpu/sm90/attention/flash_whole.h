#pragma once

// Flash attention, forward, of sequences whose keys and values are in shared memory as a whole:
// without mask, as images are looked at, of 16-bit elements.

#include <cuda_runtime.h>

#include "ridge/gpu/kernels/attention/flash.h"

namespace ridge::gpu::sm90 {

// `operands` without rotation. `rest_by_warps`: see has_rest().
void forward_whole(const FlashShape& shape, const FlashOperands& operands, bool rest_by_warps,
                   void* y, float* lse, cudaStream_t stream);

}  // namespace ridge::gpu::sm90
