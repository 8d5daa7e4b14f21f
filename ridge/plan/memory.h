#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {

// Bytes of tensors by what they are for, as allocated.
struct TensorBytes {
  std::size_t inputs = 0;
  std::size_t parameters = 0;  // and buffers
  std::size_t gradients = 0;   // of parameters
  std::size_t optimizer_state = 0;
  std::size_t intermediates = 0;  // activations, their gradients: born and gone within a step
  std::size_t workspace = 0;
  std::size_t packed = 0;  // second copies of weights, in the order that kernels like

  std::size_t& of(Role role);
  std::size_t total() const;
  // What there is of each, with its name, in the order in which people are told.
  std::vector<std::pair<std::string_view, std::size_t>> parts() const;
  bool operator==(const TensorBytes&) const = default;
};

// "parameters 1.50 GiB, activations 2.00 GiB": what there is of each.
std::string to_string(const TensorBytes& bytes);

struct MemoryPlan {
  std::size_t peak_bytes = 0;
  NodeId peak_node = no_node;  // the first node at the peak; no_node: only persistent values
  TensorBytes at_peak;         // its total is peak_bytes
  TensorBytes at_most;         // each at a moment of its own
  double mean_bytes = 0;       // over the nodes, each at its run
};

// What is alive as the graph runs in its order and every value is released after its last use.
// `workspace` is by node; `packed` bytes of packed weights live throughout.
MemoryPlan plan_memory(const Graph& graph, const Lifetimes& lifetimes,
                       std::span<const std::size_t> workspace, std::size_t packed = 0);

}  // namespace ridge
