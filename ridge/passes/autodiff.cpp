#include "ridge/passes/autodiff.h"

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/fill.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/reduce.h"
#include "ridge/ops/unary.h"

namespace ridge {
namespace {

// By value id: whether it depends on one of `wrt`, so that its gradient is worth computing.
std::vector<bool> depends_on(const Graph& graph, std::span<const Value> wrt) {
  std::vector<bool> depends(graph.value_count(), false);
  for (const Value& value : wrt) depends[value.id] = true;
  for (const Node& node : graph.nodes())
    for (const ValueId in : node.inputs)
      if (depends[in])
        for (const ValueId out : node.outputs) depends[out] = true;
  return depends;
}

// d/d(loss).
Value seed_of(Value loss, float seed, Value scale) {
  if (!scale) return fill(*loss.graph, loss.type(), seed);
  return seed == 1.0f ? scale : ridge::scale(scale, seed);
}

}  // namespace

std::vector<Value> gradients(Value loss, std::span<const Value> wrt, float seed, Value scale) {
  Graph& graph = *loss.graph;
  if (loss.shape().numel() != 1)
    throw ShapeError("only a scalar has a gradient, not {}", loss.type().to_string());
  const std::vector<bool> needed = depends_on(graph, wrt);
  const std::size_t forward_nodes = graph.nodes().size();
  const PhaseScope phase(graph, Phase::backward);

  std::vector<Value> grads(graph.value_count());  // by value id; "no value" where none arrived yet
  {
    const Scope scope(graph, graph.info(loss.id).scope);
    grads[loss.id] = seed_of(loss, seed, scale);
  }
  for (std::size_t n = forward_nodes; n-- > 0;) {
    const Node node = graph.nodes()[n];  // a copy: the graph grows below
    std::vector<Value> output_grads;
    bool reached = false, wanted = false;
    for (const ValueId out : node.outputs) {
      output_grads.push_back(grads[out]);
      reached |= static_cast<bool>(grads[out]);
    }
    for (const ValueId in : node.inputs) wanted |= needed[in];
    if (!reached || !wanted) continue;

    const Scope scope(graph, node.scope);
    const PhaseScope gradient_of(graph, Phase::backward, static_cast<NodeId>(n));
    GradBuilder builder(graph, node, output_grads, needed);
    const std::vector<Value> input_grads = grad(*node.op, builder);
    for (std::size_t i = 0; i < node.inputs.size() && i < input_grads.size(); ++i) {
      const ValueId in = node.inputs[i];
      if (!needed[in] || !input_grads[i]) continue;
      const Value arrived = sum_to(input_grads[i], graph.info(in).type.shape);
      grads[in] = grads[in] ? add(grads[in], arrived) : arrived;
    }
  }

  std::vector<Value> result;
  for (const Value& value : wrt) {
    if (!grads[value.id])
      throw UsageError("the loss does not depend on {}", graph.info(value.id).name);
    result.push_back(grads[value.id]);
  }
  return result;
}

}  // namespace ridge
