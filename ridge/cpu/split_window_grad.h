#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether the gradient by the weights of a convolution can be computed of split operands
// (split_kernel.h) without being a product of two matrices (split_conv.h): of f32 with channels
// last, 16 channels of a group or more on either side, and weights of up to 25 pixels.
bool has_split_window_grad(const ConvShape& shape);

// Such a gradient. The result has the same bits on any number of threads.
ConvPtr make_split_window_grad(const ConvShape& shape);

}  // namespace ridge
