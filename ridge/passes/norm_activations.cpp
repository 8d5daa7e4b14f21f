#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// A batch norm, the activation of its result and the concatenation that it normalizes.
struct Norm {
  NodeId norm = no_node, relu = no_node, concat = no_node;
};

// Whether the norm may read what the concatenation does, instead of its result.
bool takes(const Rewriter& rw, NodeId concat, const BatchNorm& op) {
  return op.parts == 1 && op.layout == ImageLayout::nhwc && rw.op<Concat>(concat)->dim == 3 &&
         rw.node(concat).inputs.size() <= BatchNorm::most_parts;
}

Norm norm_at(const Rewriter& rw, NodeId n) {
  const BatchNorm& op = *rw.op<BatchNorm>(n);
  Norm found{.norm = n};
  if (!op.relu) found.relu = rw.only_use<Relu>(rw.node(n).outputs[0]);
  const ValueId x = rw.node(n).inputs[0];
  const NodeId concat = rw.producer<Concat>(x);
  if (concat != no_node && rw.only_use<BatchNorm>(x) == n && takes(rw, concat, op))
    found.concat = concat;
  return found;
}

}  // namespace

std::size_t norm_activations(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!rw.op<BatchNorm>(n)) continue;
    const Norm found = norm_at(rw, n);
    if (found.relu == no_node && found.concat == no_node) continue;
    std::vector<NodeId> nodes{n};
    for (const NodeId other : {found.relu, found.concat})
      if (other != no_node) nodes.push_back(other);
    rw.replace(nodes, n, [&rw, &graph, found] {
      const Node& norm = rw.node(found.norm);
      BatchNorm op = std::get<BatchNorm>(norm.op->variant());
      std::vector<ValueId> inputs = norm.inputs;
      if (found.concat != no_node) {
        const std::vector<ValueId>& images = rw.node(found.concat).inputs;
        op.parts = images.size();
        inputs.erase(inputs.begin());
        inputs.insert(inputs.begin(), images.begin(), images.end());
      }
      op.relu = op.relu || found.relu != no_node;
      const std::vector<Value> operands = rw.values(inputs);
      const NodeId last = found.relu != no_node ? found.relu : found.norm;
      return Rewriter::Substitutes{{rw.node(last).outputs[0], graph.apply(op, operands)[0]}};
    });
  }
  return rw.commit();
}

}  // namespace ridge
