#include <algorithm>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// By parameter of node n, which updates them all: the copy in bf16 that can be its upper half, or
// no_value. Nobody else may read the parameter itself, nor the node's results otherwise than as the
// values that it updates.
template <class All>
std::vector<ValueId> upper_halves(const Rewriter& rw, NodeId n, const All& op) {
  const std::vector<ValueId>& inputs = rw.node(n).inputs;
  std::vector<ValueId> found(op.parameters(inputs.size()), no_value);
  const auto is_read = [&](ValueId v) { return !rw.uses(v).empty() || rw.info(v).kept; };
  if (std::ranges::any_of(rw.node(n).outputs, is_read)) return found;
  std::size_t copy = op.shared_operands() + All::operands_each * found.size();
  for (std::size_t p = 0; p < op.copied.size(); ++p) {
    if (!op.copied[p]) continue;
    const ValueId rounded = inputs[copy++];
    const ValueId parameter = inputs[op.shared_operands() + All::operands_each * p];
    if (rw.type(rounded).dtype == DType::bf16 && rw.info(rounded).copy_of == parameter &&
        rw.uses(parameter).size() == 1 && rw.type(parameter).shape.rank() > 0)
      found[p] = rounded;
  }
  return found;
}

// A copy in bf16 holds nothing that the weight has not: with it, 16 bits are all that is left to
// keep of each element.
template <class Each>
std::size_t split_where_updated(Graph& graph) {
  using All = UpdateAll<Each>;
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const All* const op = rw.op<All>(n);
    if (!op) continue;
    const std::vector<ValueId> upper = upper_halves(rw, n, *op);
    if (std::ranges::count(upper, no_value) == std::ssize(upper)) continue;
    rw.replace({n}, n, [&rw, &graph, n, upper, all = *op]() mutable {
      const Node& node = rw.node(n);
      std::vector<Value> inputs;
      for (const ValueId in : node.inputs)
        if (std::ranges::find(upper, in) == upper.end()) inputs.push_back(rw.value(in));
      for (std::size_t p = 0; p < upper.size(); ++p) {
        if (upper[p] == no_value) continue;
        Value& parameter = inputs[all.shared_operands() + All::operands_each * p];
        parameter = graph.split(parameter, graph.value(upper[p]));
        all.copied[p] = false;
      }
      if (all.copies() == 0) all.copied.clear();
      graph.apply(all, inputs);
      return Rewriter::Substitutes{};
    });
  }
  return rw.commit();
}

}  // namespace

std::size_t split_weights(Graph& graph) {
  return split_where_updated<AdamW>(graph) + split_where_updated<Sgd>(graph);
}

}  // namespace ridge
