#pragma once

#include <span>

#include "ridge/graph/graph.h"

namespace ridge {

// What an operator's gradient rule sees of the node it differentiates. The nodes it adds go to the
// same graph, in the backward phase, under the scope of the forward node.
class GradBuilder {
 public:
  GradBuilder(Graph& graph, const Node& node, std::span<const Value> output_grads,
              const std::vector<bool>& needed)
      : graph_(graph), node_(node), output_grads_(output_grads), needed_(needed) {}

  Value input(std::size_t i) const { return {&graph_, node_.inputs[i]}; }
  Value output(std::size_t i = 0) const { return {&graph_, node_.outputs[i]}; }
  std::size_t input_count() const { return node_.inputs.size(); }
  // The gradient of output i; "no value" if nothing downstream depends on that output.
  Value grad(std::size_t i = 0) const { return output_grads_[i]; }
  // Whether anyone asks for the gradient of input i: a rule may leave the others out.
  bool needs(std::size_t i) const { return needed_[node_.inputs[i]]; }
  Graph& graph() const { return graph_; }

 private:
  Graph& graph_;
  const Node& node_;
  std::span<const Value> output_grads_;
  const std::vector<bool>& needed_;  // by value id
};

}  // namespace ridge
