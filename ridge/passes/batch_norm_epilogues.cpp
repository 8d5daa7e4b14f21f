#include <optional>
#include <vector>

#include "ridge/passes/epilogues.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// A batch norm in training, and what becomes a part of it.
struct NormChain {
  std::vector<NodeId> nodes;  // from the norm to the last
  std::optional<ValueId> residual;
  Epilogue epilogue = Epilogue::none;
};

std::optional<NormChain> chain_of_norm(const Rewriter& rw, NodeId n) {
  const BatchNormTrain* op = rw.op<BatchNormTrain>(n);
  if (!op || op->residual || op->epilogue != Epilogue::none) return std::nullopt;
  NormChain chain{.nodes = {n}, .residual = {}};
  const auto next = [&] { return reader(rw, rw.node(chain.nodes.back()).outputs[0]); };
  chain.residual = residual_of(rw, next(), rw.node(n).outputs[0]);
  if (chain.residual) chain.nodes.push_back(next());
  const Epilogue epilogue = epilogue_of(rw, next());
  if (epilogue == Epilogue::relu || (epilogue != Epilogue::none && !chain.residual)) {
    chain.nodes.push_back(next());
    chain.epilogue = epilogue;
  }
  if (chain.nodes.size() == 1) return std::nullopt;
  return chain;
}

}  // namespace

// From the last norm on: of two whose results are added, the later takes the sum, since the other
// would have to wait for it.
std::size_t batch_norm_epilogues(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = static_cast<NodeId>(rw.nodes().size()); n-- > 0;)
    if (const auto chain = chain_of_norm(rw, n))
      rw.replace(chain->nodes, chain->nodes.back(), [&rw, &graph, n, chain = *chain] {
        const Node& norm = rw.node(n);
        BatchNormTrain op = std::get<BatchNormTrain>(norm.op->variant());
        op.residual = chain.residual.has_value();
        op.epilogue = chain.epilogue;
        std::vector<Value> operands = rw.values(norm.inputs);
        if (chain.residual) operands.push_back(rw.value(*chain.residual));
        const Scope scope(graph, norm.scope);
        const std::vector<Value> out = graph.apply(op, operands);
        std::vector<ValueId> results = norm.outputs;
        results[0] = rw.node(chain.nodes.back()).outputs[0];
        return Rewriter::each(results, out);
      });
  return rw.commit();
}

// An image with two readers, such as behind each block of a ResNet, has a sum as its gradient.
std::size_t batch_norm_gradients(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const BatchNormGrad* op = rw.op<BatchNormGrad>(n);
    if (!op || op->summed) continue;
    const Node& node = rw.node(n);
    const ValueId dy = node.inputs[op->operands().dy];
    const NodeId sum = rw.producer<Add>(dy);
    if (sum == no_node || rw.only_use<BatchNormGrad>(dy) != n) continue;
    const std::vector<ValueId>& terms = rw.node(sum).inputs;
    if (rw.type(terms[0]) != rw.type(dy) || rw.type(terms[1]) != rw.type(dy)) continue;
    rw.replace({sum, n}, n, [&rw, &graph, &node, &terms, with_sum = *op]() mutable {
      with_sum.summed = true;
      std::vector<Value> operands = rw.values(node.inputs);
      operands[0] = rw.value(terms[0]);
      operands.insert(operands.begin() + 1, rw.value(terms[1]));
      return Rewriter::each(node.outputs, graph.apply(with_sum, operands));
    });
  }
  return rw.commit();
}

}  // namespace ridge
