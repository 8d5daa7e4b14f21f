#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ridge/graph/graph.h"

namespace ridge {

// Lets the products of bf16 matrices under any of the scopes take their operands in 8 bits: e4m3,
// and e5m2 for the left operand of a gradient's product, which is the gradient that came in. Each
// operand is quantised once, before the first product that takes it, in every layout that some
// product needs. Results keep their dtype. Left alone are batches of products (attention's) and
// those of which an extent is no multiple of ScaledMatMul::extent_multiple. Returns how many
// products were rewritten.
//
// It is no Pass: those leave what is computed the same. It comes after all of them, on a forward
// graph or on a whole step.
std::size_t fp8_products(Graph& graph, std::span<const std::string> scopes);

}  // namespace ridge
