#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// A rewrite that a graph allows, and what it would save each time the graph runs. All of it is read
// off the graph: which nodes it replaces, what these move now, what one kernel in their place
// would.
struct Rewrite {
  std::string name;     // "flash attention"
  std::string subject;  // what it changes: "attention scores"
  std::string passes;   // which do it: "flash-attention", as --enable-pass takes them
  std::vector<NodeId> nodes;
  std::int64_t kernels_now = 0, kernels_after = 0;
  std::int64_t bytes_now = 0, bytes_after = 0;
  std::int64_t extra_flops = 0;       // what it computes a second time
  std::int64_t activation_bytes = 0;  // kept for the backward pass now, and no longer

  std::int64_t bytes_saved() const { return bytes_now - bytes_after; }
};

// Those that apply to the graph, each over all places where it does:
//   flash attention        scores, softmax and their gradients stay in registers and caches
//   one product for A, B   several projections of one input: it is read once, and the gradients by
//                          it are summed in the product
//   SwiGLU in one kernel   silu(gate) * up, and its gradient, which recomputes the sigmoid
//   residual with norm     the sum is normalised while it is at hand, and the gradients alike
//   one optimizer kernel   for all parameters
//   strided heads          attention reads the heads where the projection left them
std::vector<Rewrite> possible_rewrites(const Graph& graph);

// Bytes that one kernel in place of `nodes` reads and writes: each value from outside once, and of
// its own only those that others use. Values in `dropped` are neither read nor written.
std::int64_t fused_bytes(const Graph& graph, std::span<const NodeId> nodes,
                         std::span<const ValueId> dropped = {});

// By value: the one whose memory it shares through reshapes, or itself.
std::vector<ValueId> reshape_roots(const Graph& graph);

// What the forward pass computes and the backward pass uses, without what is persistent or fed.
std::vector<ValueId> kept_for_backward(const Graph& graph);

}  // namespace ridge
