#pragma once

#include <vector>

#include "ridge/cpu/onednn_conv.h"
#include "ridge/cpu/prepare.h"
#include "ridge/device/kernel.h"

namespace ridge {

// What make_conv() takes beside tiles of Winograd's algorithm: direct sums.
inline constexpr int by_products = 1, by_split_products = -1, by_split_blocks = -2;

// A convolution of any dtype and layout: where the library has none, or a much slower one, through
// copies of the operands. If `tile` is one of conv_tiles(), by that instead of the library.
ConvPtr make_conv(const ConvShape& shape, int tile = 0);

// The tiles that our own kernels may compute it in: `by_split_products` where split operands are
// allowed (split_conv.h, split_window_conv.h, split_window_grad.h), in training also
// `by_split_blocks` where few rows read the weights (SplitWeights::in_blocks); those of Winograd's
// algorithm (winograd_conv.h), 2 and 4, where it multiplies far less, else `by_products` for a
// gradient by the weights (product_weight_grad.h). In training a forward pass gets those alone that
// are as exact as direct sums: an activation that rounding takes to the other side of 0 is another
// gradient.
std::vector<int> conv_tiles(const ConvShape& shape, const KernelChoice& choice);

// Which of a launch's operands are a convolution's.
using ConvOperandsOf = ConvOperands (*)(const Launch& call, const ConvShape& shape);

// A kernel of it, by the library or, where kernels are tuned, by what is fastest. Its second input
// is the weights, if it reads such; they are packed once where nothing changes them between
// launches (device/packing.h), else each time. Where that is too slow `unpacked` runs instead, of
// whose workspace `prepare` knows.
KernelPtr conv_kernel(CpuPrepare& prepare, const ConvShape& shape, ConvOperandsOf operands_of,
                      KernelPtr unpacked = {});

}  // namespace ridge
