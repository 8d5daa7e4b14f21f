#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {

// Before the gradient is appended, which then is of what all ranks have too.
std::size_t sync_batch_norm(Graph& graph, std::int64_t ranks) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const auto* const op = rw.op<BatchNormTrain>(n);
    if (op == nullptr) continue;
    rw.replace({n}, n, [&rw, &graph, n, of_all = *op, ranks]() mutable {
      of_all.ranks = ranks;
      const Node& node = rw.node(n);
      return Rewriter::each(node.outputs, graph.apply(of_all, rw.values(node.inputs)));
    });
  }
  return rw.commit();
}

}  // namespace ridge
