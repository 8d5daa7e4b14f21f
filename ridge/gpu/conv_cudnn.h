#pragma once

// Convolutions by cuDNN's backend.

#include <memory>

#include "ridge/gpu/cudnn.h"
#include "ridge/gpu/dnn.h"

namespace ridge::gpu {

// As Dnn::conv().
std::unique_ptr<FusedConv> cudnn_conv(const cudnn::Library& library, cudnn::Handle handle,
                                      const ConvProblem& problem, std::size_t rank);

}  // namespace ridge::gpu
