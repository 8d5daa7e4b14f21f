#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether a convolution, or a gradient of one, is a product that can be computed of split operands
// (split_gemm.h): of f32 with channels last, windows of one pixel, steps of one, no padding, no
// groups.
bool has_split_conv(const ConvShape& shape);

// Such a convolution. The result has the same bits on any number of threads.
ConvPtr make_split_conv(const ConvShape& shape);

}  // namespace ridge
