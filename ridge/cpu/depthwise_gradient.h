#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether there is a kernel of our own for it: the gradient of the weights of a convolution of each
// channel by itself, with channels last, by 5 x 5 or 7 x 7 weights, in f32 or bf16. oneDNN computes
// it as if 16 channels were a group, of which it needs a 256th.
bool is_depthwise_gradient(const ConvShape& shape);

// Such a gradient. Sums are f32, in an order that depends on the shape alone.
ConvPtr make_depthwise_gradient(const ConvShape& shape);

}  // namespace ridge
