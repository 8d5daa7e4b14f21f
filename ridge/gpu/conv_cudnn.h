#pragma once

// Convolutions by cuDNN's backend.

#include <memory>

#include "ridge/gpu/cudnn.h"
#include "ridge/gpu/dnn.h"

namespace ridge::gpu {

// DeviceError if the library has no kernel for it.
std::unique_ptr<FusedConv> cudnn_conv(const cudnn::Library& library, cudnn::Handle handle,
                                      const ConvProblem& problem);

}  // namespace ridge::gpu
