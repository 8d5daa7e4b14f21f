#pragma once

// Convolutions by cuDNN's backend.

#include <memory>

#include "ridge/gpu/vendor/cudnn.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

// As Dnn::conv().
std::unique_ptr<FusedConv> cudnn_conv(const cudnn::Library& library, cudnn::Handle handle,
                                      const ConvProblem& problem, std::size_t rank);

}  // namespace ridge::gpu
