#include <algorithm>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {

// Where nothing reads the logits after their gradient is computed, it is written over them.
std::size_t cross_entropy_in_place(Graph& graph) {
  Rewriter rw(graph);
  const Lifetimes life = lifetimes_of(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const CrossEntropyGrad* op = rw.op<CrossEntropyGrad>(n);
    if (!op || op->in_place) continue;
    const ValueId logits = rw.node(n).inputs[1];
    if (std::ranges::find(life.dead[n], life.storage[logits]) == life.dead[n].end()) continue;
    if (rw.type(logits) != rw.type(rw.node(n).outputs[0])) continue;
    rw.replace({n}, n, [&rw, &graph, n, op = *op]() mutable {
      op.in_place = true;
      std::vector<Value> inputs;
      for (const ValueId in : rw.node(n).inputs) inputs.push_back(rw.value(in));
      return Rewriter::Substitutes{{rw.node(n).outputs[0], graph.apply(op, inputs)[0]}};
    });
  }
  return rw.commit();
}

}  // namespace ridge
