#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {

// All AdamW nodes of equal attributes, schedule and norm become one over all their tensors.
std::size_t fuse_optimizer(Graph& graph) {
  Rewriter rw(graph);
  std::vector<NodeId> nodes;
  std::vector<ValueId> shared;  // schedule and, with clipping, norm
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const AdamW* op = rw.op<AdamW>(n);
    if (!op) continue;
    const auto& inputs = rw.node(n).inputs;
    const std::vector<ValueId> rest(inputs.begin() + 4, inputs.end());
    if (nodes.empty()) shared = rest;
    if (rest == shared && *op == *rw.op<AdamW>(nodes.empty() ? n : nodes.front()))
      nodes.push_back(n);
  }
  if (nodes.size() < 2) return 0;
  const AdamW each = *rw.op<AdamW>(nodes.front());
  rw.replace(nodes, nodes.back(), [&rw, &graph, nodes, shared, each] {
    std::vector<Value> inputs;
    for (const ValueId v : shared) inputs.push_back(rw.value(v));
    for (const NodeId n : nodes)
      for (std::size_t i = 0; i < 4; ++i) inputs.push_back(rw.value(rw.node(n).inputs[i]));
    const std::vector<Value> out = graph.apply(AdamWAll{.each = each}, inputs);
    Rewriter::Substitutes updated;
    for (std::size_t k = 0; k < nodes.size(); ++k)
      for (std::size_t i = 0; i < 3; ++i)
        updated.emplace_back(rw.node(nodes[k]).outputs[i], out[3 * k + i]);
    return updated;
  });
  return rw.commit();
}

}  // namespace ridge
