#pragma once

// Flash attention of sequences that are one tile long, of 16-bit elements.

#include <cuda_runtime.h>

#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/sm90/attention/flash_backward.h"

namespace ridge::gpu::sm90 {

void forward_short(const FlashShape& shape, const FlashOperands& operands, void* y, float* lse,
                   cudaStream_t stream);
void backward_short(const BackwardCall& call);

}  // namespace ridge::gpu::sm90
