#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/passes/target.h"

namespace ridge {

// The largest magnitude of values, as calibration found it.
using Int8Ranges = std::map<ValueId, float>;

// Post-training quantization for inference, after folding and fusion: convolutions with
// channels last and linear layers take their operands in s8 (ops/int8.h). Weights are rounded with
// a scale for each kernel; every other value has one scale, by the largest magnitude that
// calibration found. A result stays in s8 where all that read it are such layers, as operand or
// residual, or hand it on as it is: maximum pools, concatenations and reshapes, whose operands and
// result share one scale. All else is computed as before, in floating point, and rounded where a
// layer takes it. This includes layers with few input channels, such as a network's first, and
// those that nothing but sums, pools and resizing separates from the logits.
//
// The pass int8-layers applies it; other passes leave the results as they are.

// The values that are rounded, which calibration has to see.
std::vector<ValueId> int8_values(Graph& graph, const Int8Rules& rules);

// Rewrites the graph; a value without a range has scale 1. Returns how many layers it changed.
// Error for a range that is not finite.
std::size_t int8_layers(Graph& graph, const Int8Rules& rules, const Int8Ranges& ranges);

}  // namespace ridge
