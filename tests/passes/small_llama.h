#pragma once

// What the tests of products in narrow types train, and how they look at its graph.

#include <string>
#include <variant>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/ops/op.h"
#include "ridge/session/options.h"

namespace ridge::testing {

// Of blocks whose extents are multiples of 16, as products in 8 bits want them. Not resolved.
inline RunOptions small_llama(const std::string& version, const std::string& dtype,
                              std::int64_t n_layers) {
  RunOptions o;
  o.version = version;
  o.dtype = dtype;
  o.vocab_size = 64;
  o.hidden_dim = 64;
  o.n_layers = n_layers;
  o.n_heads = 4;
  o.n_kv_heads = 2;
  o.intermediate_dim = 96;
  o.batch_size = 2;
  o.seq_len = 16;
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
