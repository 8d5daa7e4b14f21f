#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {

std::size_t masked_softmax(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!rw.op<Softmax>(n)) continue;
    const ValueId masked = rw.node(n).inputs[0];
    const NodeId mask = rw.producer<CausalMask>(masked);
    if (mask == no_node || rw.only_use<Softmax>(masked) == no_node) continue;
    if (*rw.op<CausalMask>(mask) != CausalMask{}) continue;
    const ValueId scores = rw.node(mask).inputs[0];
    if (rw.only_use<CausalMask>(scores) == no_node) continue;
    std::vector<NodeId> nodes{mask, n};
    ValueId scaled = scores;
    if (const NodeId reshape = rw.producer<Reshape>(scores); reshape != no_node) {
      scaled = rw.node(reshape).inputs[0];
      if (rw.only_use<Reshape>(scaled) == no_node) continue;
      nodes.push_back(reshape);
    }
    const NodeId scale = rw.producer<Scale>(scaled);
    if (scale == no_node) continue;
    nodes.push_back(scale);
    rw.replace(nodes, n, [&rw, &graph, n, scale, factor = rw.op<Scale>(scale)->factor] {
      const Node& old = rw.node(n);
      const Value x = reshape(rw.value(rw.node(scale).inputs[0]), rw.type(old.inputs[0]).shape);
      return Rewriter::Substitutes{
          {old.outputs[0], graph.apply1(MaskedSoftmax{.scale = factor}, {x})}};
    });
  }
  return rw.commit();
}

}  // namespace ridge
