#pragma once

#include <string>
#include <vector>

#include "ridge/graph/op_rules.h"
#include "ridge/profile/recording.h"

namespace ridge {

// How one node ran over the recorded steps. Times in nanoseconds.
struct NodeStats {
  NodeId node = 0;
  std::int64_t calls = 0;
  std::int64_t total_ns = 0, min_ns = 0, max_ns = 0;
  Cost cost;  // of one call
};

// The name of a node for people: "layers.0.attention: softmax", "head: matmul (backward)".
std::string node_name(const Graph& graph, NodeId node);

// Returns the statistics of every node that ran, in the graph's order; reshapes never run.
std::vector<NodeStats> node_stats(const Recording& recording);

// The recorded steps' own time, and the part of it that no node accounts for: between kernels, and
// in what a step does around its phases.
struct StepTime {
  std::int64_t steps = 0;
  std::int64_t total_ns = 0;
  std::int64_t nodes_ns = 0;
  std::int64_t between_nodes_ns = 0;   // within phases: allocation, dispatch
  std::int64_t outside_phases_ns = 0;  // feeding data, reading the loss
};
StepTime step_time(const Recording& recording);

}  // namespace ridge
