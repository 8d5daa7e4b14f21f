#pragma once

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether a convolution, or a gradient of one, can be computed by Winograd's minimal filtering: of
// f32 with channels last, weights of 3 x 3 pixels, stride and dilation 1, no groups, and multiples
// of 16 channels.
bool has_winograd(const ConvShape& shape);

// Such a convolution, in tiles of `tile` x `tile` results, 2 or 4: (tile + 2)^2 products of
// channels for each tile instead of 9 tile^2, so 2.25 or 4 times fewer. Sums are f32. Measured
// against oneDNN's direct sums, tiles of 2 are off 0.6 times as far forward and 1.3 to 2.4 times in
// gradients by x, tiles of 4 1.7 to 1.9 times and 2 to 7 times. The result has the same bits on any
// number of threads.
//
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015. Polynomials
// are evaluated at 0, +-1 and infinity, or at 0, +-sqrt(1/2), +-sqrt(2) and infinity.
ConvPtr make_winograd_conv(const ConvShape& shape, int tile);

}  // namespace ridge
