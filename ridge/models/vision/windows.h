#pragma once

#include <cstdint>

#include "ridge/models/vision/layers.h"

namespace ridge::vision {

// Attention among the positions of square windows, with a learned bias for each offset between two
// positions: what the transformers of images over windows share.

// heads of [.., P, heads d]: [B, P, C] -> [B, heads, P, C / heads], of the columns that begin at
// `first`.
Value window_heads(Value x, std::int64_t first, std::int64_t columns, std::int64_t heads);
// And back: [B, heads, P, d] -> [B, P, heads d].
Value join_heads(Value x);

// For each pair of positions in a window of `size` x `size`, the row of a table of all
// (2 size - 1)^2 offsets, as i32 [size^4]: a constant named "relative_position_index" of shape
// `shape`.
Value relative_position_index(const Layers& layers, std::int64_t size, const Shape& shape);

// The rows of table[(2 size - 1)^2, heads] for each pair: [1, heads, size^2, size^2].
Value relative_position_bias(Value table, Value index, std::int64_t positions);

}  // namespace ridge::vision
