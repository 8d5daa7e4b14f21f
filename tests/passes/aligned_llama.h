#pragma once

// What the tests of products in narrow types train, and how they look at its graph.

#include <string>
#include <variant>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/ops/op.h"
#include "tests/session/runs.h"

namespace ridge::testing {

// A LLaMA whose extents are multiples of 16, as products in 8 bits want them. Not resolved.
inline RunOptions aligned_llama(const std::string& version, const std::string& dtype,
                                std::int64_t n_layers) {
  RunOptions o = small_llama({.vocab_size = 64,
                              .hidden_dim = 64,
                              .n_layers = n_layers,
                              .intermediate_dim = 96,
                              .batch_size = 2,
                              .seq_len = 16});
  o.version = version;
  o.dtype = dtype;
  o.learning_rate = 1e-3;
  return o;
}

template <class T>
std::vector<const Node*> nodes_of(const Graph& graph) {
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes())
    if (std::holds_alternative<T>(node.op->variant())) nodes.push_back(&node);
  return nodes;
}

}  // namespace ridge::testing
