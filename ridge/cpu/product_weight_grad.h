#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether the gradient by the weights of a convolution can be computed by our own products: of f32
// with channels last, without groups, multiples of 16 channels, and weights of 2 to 25 pixels. (Of
// one pixel it is a product already, which the library computes as fast.)
bool has_product_weight_grad(const ConvShape& shape);

// Such a gradient: for each pixel of the weights a product of the gradient of the result by the
// image that lies under it, as deep as there are results. Sums are f32. The result has the same
// bits on any number of threads.
ConvPtr make_product_weight_grad(const ConvShape& shape);

}  // namespace ridge
