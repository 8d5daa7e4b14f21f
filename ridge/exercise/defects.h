#pragma once

#include <cstddef>

#include "ridge/graph/graph.h"

namespace ridge {

// Defects of a training step's finished graph. Each leaves it valid, and returns how many places it
// changed.

// The scale of the weights is forgotten: what was drawn from N(0, std^2) is drawn from N(0, n), n
// being the elements that each output is a sum of, where 1/n would keep activations of size one.
std::size_t forget_weight_scale(Graph& graph);

// The products of the dense layers, forward and backward, work on rows[S, B, K], sequence first,
// with the weight, or its gradient, repeated for each position: S products of B rows where there
// was one of S B rows. The numbers are the same, and so are the FLOPs of the products.
std::size_t put_sequence_first(Graph& graph);

// The loss is computed from a copy of the logits that remembers not where it comes from: all
// gradients are zero, and nothing computes them.
std::size_t detach_loss(Graph& graph);

}  // namespace ridge
