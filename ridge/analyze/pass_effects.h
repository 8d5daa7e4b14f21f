#pragma once

// What passes do to a workload's graph, found by running them.

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/analyze/plan.h"

namespace ridge {

// A step once a pass has been added to what a schedule has.
struct PassEffect {
  const Pass* pass = nullptr;
  StepPlan before, after;
  // The pass's name, for --enable-pass.
  std::string enable;
  std::vector<NodeId>
      replaced;  // of the graph before: the nodes that it does not leave as they are
  std::vector<std::string> added;  // operators of the nodes in their place, by name, each once
  std::int64_t replaced_bytes = 0, added_bytes = 0;  // that these move, each operand once
  std::int64_t activation_bytes = 0;  // not kept any more from the forward for the backward pass

  std::int64_t kernels_saved() const { return before.launches - after.launches; }
  std::int64_t bytes_saved() const {
    return before.cost.total().bytes() - after.cost.total().bytes();
  }
  std::int64_t extra_flops() const {
    return after.cost.total().causal_flops - before.cost.total().causal_flops;
  }
};

// Returns what each pass outside the run's schedule would do on top of it, of those that the user
// may enable, that rewrite graphs and suit the run and its device. Those that find nothing are
// left out. `graph` is the one that the options give.
std::vector<PassEffect> pass_effects(const RunOptions& options, Device& device, const Graph& graph);

// What the forward pass computes and the backward pass uses, without what is persistent or fed.
std::vector<ValueId> kept_for_backward(const Graph& graph);

}  // namespace ridge
