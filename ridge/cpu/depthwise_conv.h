#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether there is a kernel of our own for it: forward, each channel by itself, with channels last,
// by 3 x 3 or 5 x 5 weights, in f32 or bf16.
bool is_depthwise(const ConvShape& shape);

// Such a convolution. Its packed weights are [R, S, C]. Sums are f32, in an order that depends
// on nothing.
ConvPtr make_depthwise_conv(const ConvShape& shape);

}  // namespace ridge
