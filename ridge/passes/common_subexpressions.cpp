#include <algorithm>
#include <vector>

#include "ridge/graph/op_rules.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

bool updates_in_place(const Rewriter& rw, NodeId n) {
  const Node& node = rw.node(n);
  for (std::uint32_t i = 0; i < node.outputs.size(); ++i)
    if (aliased_input(*node.op, i, rw.graph().types_of(node.inputs)) && !only_renames(*node.op))
      return true;
  return false;
}

}  // namespace

// The first of equal nodes stands for all. Optimizer nodes are left alone: what they read changes
// under the same name.
std::size_t common_subexpressions(Graph& graph) {
  Rewriter rw(graph);
  std::vector<ValueId> same(graph.value_count());
  for (ValueId v = 0; v < same.size(); ++v) same[v] = v;
  const auto operands = [&](NodeId n) {
    std::vector<ValueId> ids = rw.node(n).inputs;
    for (ValueId& id : ids) id = same[id];
    return ids;
  };
  std::vector<std::vector<NodeId>> first_users(
      graph.value_count());  // by first operand, kept nodes
  std::vector<NodeId> sourceless;
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const Node& node = rw.node(n);
    if (node.phase == Phase::optimizer || updates_in_place(rw, n)) continue;
    const std::vector<ValueId> inputs = operands(n);
    std::vector<NodeId>& known = inputs.empty() ? sourceless : first_users[inputs[0]];
    const auto equal = std::ranges::find_if(
        known, [&](NodeId k) { return operands(k) == inputs && *rw.node(k).op == *node.op; });
    const bool readable =
        std::ranges::any_of(node.outputs, [&](ValueId v) { return rw.is_readable(v); });
    if (equal == known.end()) {
      known.push_back(n);
    } else if (!readable) {
      Rewriter::Substitutes joined;
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        same[node.outputs[i]] = rw.node(*equal).outputs[i];
        joined.emplace_back(node.outputs[i], graph.value(rw.node(*equal).outputs[i]));
      }
      rw.replace({n}, n, [joined] { return joined; });
    }
  }
  return rw.commit();
}

}  // namespace ridge
