#pragma once

#include <cstdint>
#include <vector>

#include "ridge/ops/op.h"
#include "ridge/plan/memory.h"
#include "ridge/session/session.h"

namespace ridge {

// The whole graph of a run, as one of its ranks has it. `options` are resolved.
struct BuiltRun {
  Graph graph;
  BuiltGraph built;

  explicit BuiltRun(const RunOptions& options, std::int64_t rank = 0, const Target& target = {})
      : built(build_graph(graph, workload_of(options), options.schedule(target),
                          accumulation_of(options), {.rank = rank})) {}

  template <class T>
  std::vector<const Node*> nodes_of() const {
    std::vector<const Node*> found;
    for (const Node& node : graph.nodes())
      if (std::get_if<T>(&node.op->variant())) found.push_back(&node);
    return found;
  }
  MemoryPlan memory() const {
    const std::vector<std::size_t> workspace(graph.nodes().size(), 0);
    return plan_memory(graph, lifetimes_of(graph), workspace);
  }
};

}  // namespace ridge
