#include <optional>
#include <utility>

#include "ridge/passes/epilogues.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// A convolution and what becomes a part of it.
struct ConvChain {
  NodeId conv = no_node;
  NodeId add = no_node;  // of the residual
  ValueId residual = no_value;
  NodeId activation = no_node;  // after all
  Epilogue epilogue = Epilogue::none;

  NodeId last() const { return activation != no_node ? activation : add != no_node ? add : conv; }
  std::vector<NodeId> nodes() const {
    std::vector<NodeId> all{conv};
    for (const NodeId n : {add, activation})
      if (n != no_node) all.push_back(n);
    return all;
  }
};

std::optional<ConvChain> chain_of_conv(const Rewriter& rw, NodeId conv) {
  const Conv2d* op = rw.op<Conv2d>(conv);
  if (!op || op->epilogue != Epilogue::none) return std::nullopt;
  ConvChain chain{.conv = conv};
  NodeId next = reader(rw, rw.node(conv).outputs[0]);
  const auto residual = residual_of(rw, next, rw.node(conv).outputs[0]);
  if (residual && !op->residual) {
    chain.add = next;
    chain.residual = *residual;
    next = reader(rw, rw.node(next).outputs[0]);
  }
  const Epilogue epilogue = epilogue_of(rw, next);
  if (epilogue != Epilogue::none && Conv2d::takes(epilogue)) {
    chain.activation = next;
    chain.epilogue = epilogue;
  }
  if (chain.last() == conv) return std::nullopt;
  return chain;
}

}  // namespace

// From the last convolution on: of two whose results are added, the later takes the sum, since the
// other would have to wait for it.
std::size_t conv_epilogues(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = static_cast<NodeId>(rw.nodes().size()); n-- > 0;)
    if (const auto chain = chain_of_conv(rw, n))
      rw.replace(chain->nodes(), chain->last(), [&rw, &graph, chain = *chain] {
        const Node& conv = rw.node(chain.conv);
        Conv2d op = std::get<Conv2d>(conv.op->variant());
        op.epilogue = chain.epilogue;
        std::vector<Value> operands = rw.values(conv.inputs);
        if (chain.add != no_node) {
          op.residual = true;
          operands.push_back(rw.value(chain.residual));
        }
        const Scope scope(graph, conv.scope);
        return Rewriter::Substitutes{
            {rw.node(chain.last()).outputs[0], graph.apply(op, operands)[0]}};
      });
  return rw.commit();
}

}  // namespace ridge
