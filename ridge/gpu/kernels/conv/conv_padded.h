#pragma once

// The gradient of the weight of a first layer, whose images have fewer channels than tensor cores
// take at once: of images padded to eight.

#include <memory>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

// Gradients of weights in 16 bits, with channels last, of ungrouped images of less than 8 channels.
bool takes_padding(const ConvProblem& problem);

// By the library's plan of this rank for eight channels. DeviceError if it has none. `gpu` outlives
// the result.
std::unique_ptr<FusedConv> padded_weight_grad(const Context& gpu, const ConvProblem& problem,
                                              std::size_t rank);

}  // namespace ridge::gpu
