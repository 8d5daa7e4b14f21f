#include <algorithm>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// Lets each T write over its operand where no later node reads that operand.
template <OverOperand T>
std::size_t write_over_operand(Graph& graph) {
  Rewriter rw(graph);
  const Lifetimes life = lifetimes_of(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const T* op = rw.op<T>(n);
    const Node& node = rw.node(n);
    if (!op || op->in_place) continue;
    T in_place = *op;
    in_place.in_place = true;
    const auto alias = in_place.aliased_input(0, graph.types_of(node.inputs));
    if (!alias) continue;
    const ValueId operand = node.inputs[alias->input];
    const bool dies = std::ranges::find(life.dead[n], life.storage[operand]) != life.dead[n].end();
    if (!dies || rw.type(operand) != rw.type(node.outputs[0])) continue;
    rw.replace({n}, n, [&rw, &node, in_place] {
      return Rewriter::each(node.outputs, rw.graph().apply(in_place, rw.values(node.inputs)));
    });
  }
  return rw.commit();
}

}  // namespace

std::size_t cross_entropy_in_place(Graph& graph) {
  return write_over_operand<CrossEntropyGrad>(graph);
}

// Applies to gate and up side by side; as two operands they stay.
std::size_t swiglu_in_place(Graph& graph) { return write_over_operand<SwiGluGrad>(graph); }

}  // namespace ridge
