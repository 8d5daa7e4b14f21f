#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// The gradient by the weights of a convolution for which has_winograd() holds (winograd_conv.h), in
// tiles of `tile` x `tile` results, 2 or 4. Sums are f32. The result has the same bits on any
// number of threads.
ConvPtr make_winograd_weight_grad(const ConvShape& shape, int tile);

}  // namespace ridge
