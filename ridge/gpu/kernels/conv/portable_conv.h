#pragma once

// Convolutions and their gradients as products in tiles (implicit GEMM), on the matrix units of any
// card, in every dtype but those of 8 bits. Sums are f32, always in the same order.

#include <cstddef>
#include <memory>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

// By the plan of this rank; null if there are fewer, and for groups of fewer than 16 channels.
std::shared_ptr<FusedConv> portable_conv(const Card& card, const ConvProblem& problem,
                                         std::size_t rank);

}  // namespace ridge::gpu
