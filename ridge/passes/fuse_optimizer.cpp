#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {

namespace {

// All nodes of an optimizer with equal attributes, schedule and norm become one over all their
// tensors.
template <class Each>
std::size_t fuse_all(Graph& graph) {
  constexpr std::size_t operands = UpdateAll<Each>::operands_each, results = 1 + Each::moments;
  Rewriter rw(graph);
  std::vector<NodeId> nodes;
  std::vector<ValueId> shared;  // schedule and, with clipping, norm
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const Each* op = rw.op<Each>(n);
    if (!op) continue;
    const auto& inputs = rw.node(n).inputs;
    const std::vector<ValueId> rest(inputs.begin() + operands, inputs.end());
    if (nodes.empty()) shared = rest;
    if (rest == shared && *op == *rw.op<Each>(nodes.empty() ? n : nodes.front()))
      nodes.push_back(n);
  }
  if (nodes.size() < 2) return 0;
  const Each each = *rw.op<Each>(nodes.front());
  rw.replace(nodes, nodes.back(), [&rw, &graph, nodes, shared, each] {
    std::vector<Value> inputs;
    for (const ValueId v : shared) inputs.push_back(rw.value(v));
    for (const NodeId n : nodes)
      for (std::size_t i = 0; i < operands; ++i) inputs.push_back(rw.value(rw.node(n).inputs[i]));
    const std::vector<Value> out = graph.apply(UpdateAll<Each>{.each = each}, inputs);
    Rewriter::Substitutes updated;
    for (std::size_t k = 0; k < nodes.size(); ++k)
      for (std::size_t i = 0; i < results; ++i)
        updated.emplace_back(rw.node(nodes[k]).outputs[i], out[results * k + i]);
    return updated;
  });
  return rw.commit();
}

}  // namespace

std::size_t fuse_optimizer(Graph& graph) { return fuse_all<AdamW>(graph) + fuse_all<Sgd>(graph); }

}  // namespace ridge
