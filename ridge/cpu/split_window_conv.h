#pragma once

#include <cstdint>

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

// Whether a convolution, or its gradient by x, can be computed of split operands (split_kernel.h)
// by direct sums: of f32 with channels last, 16 channels of a group or more, the gradient for steps
// of one; but not where it is a product of two matrices (split_conv.h).
bool has_split_window_conv(const ConvShape& shape);

// When its weights are split: once, to be kept or for one run, or block by block where they are
// multiplied, which spares the memory between where few rows read them.
enum class SplitWeights : std::uint8_t { ahead, in_blocks };

// Whether its rows are so few that a task may have all of them.
bool has_few_rows(const ConvShape& shape);

// Such a convolution. The result has the same bits on any number of threads, and with either way of
// splitting weights.
ConvPtr make_split_window_conv(const ConvShape& shape, SplitWeights weights);

}  // namespace ridge
