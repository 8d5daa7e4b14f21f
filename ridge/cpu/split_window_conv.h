#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether a convolution, or its gradient by x, can be computed of split operands (split_kernel.h)
// by direct sums: of f32 with channels last, 16 channels of a group or more, the gradient for steps
// of one; but not where it is a product of two matrices (split_conv.h).
bool has_split_window_conv(const ConvShape& shape);

// Such a convolution. The result has the same bits on any number of threads.
ConvPtr make_split_window_conv(const ConvShape& shape);

}  // namespace ridge
