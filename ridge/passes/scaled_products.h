#pragma once

#include <cstddef>

#include "ridge/graph/graph.h"

namespace ridge {

// Products of narrower operands with a scale each. Operands are quantized once, before the first
// product that takes them, forward or backward, in every layout that some product needs. Results
// keep their dtype. Both run near the end of the table, since other passes do not know them,
// on a forward graph or on a whole step, and return how many products were rewritten.

// Lets the products of bf16 matrices in all blocks but the first and the last, whose products stand
// the fewest digits, take their operands in 8 bits: e4m3, and e5m2 for the left operand of a
// gradient's product, which is the gradient that came in. Left alone are batches of products
// (attention's) and those of which an extent is no multiple of ScaledMatMul::extent_multiple.
std::size_t fp8_products(Graph& graph);

// Lets the products of f32 matrices take their operands in f16: tf32's precision at the speed of 16
// bits. Left alone are batches of products and those of operands whose rows are no multiple of
// ScaledMatMul::row_multiple long. Sums of gradients over batches stay in the products.
std::size_t f16_products(Graph& graph);

}  // namespace ridge
