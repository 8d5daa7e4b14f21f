#pragma once

#include <cstdint>

#include "ridge/models/vision/layers.h"

namespace ridge::vision {

// The learned bias for each offset between two positions of a square window: what the transformers
// of images over windows share (ops/window_attention.h).

// For each pair of positions in a window of `size` x `size`, the row of a table of all
// (2 size - 1)^2 offsets, as i32 [size^4]: a constant named "relative_position_index" of shape
// `shape`.
Value relative_position_index(const Layers& layers, std::int64_t size, const Shape& shape);

// The rows of table[(2 size - 1)^2, heads] for each pair: [heads, size^2, size^2].
Value relative_position_bias(Value table, Value index, std::int64_t positions);

}  // namespace ridge::vision
