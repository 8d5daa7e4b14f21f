#include <array>
#include <optional>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// sum + (x + y) as (sum + x) + y, so that each term can be added where it is computed: the gradient
// of a weight with two uses, such as a table that embeds tokens and gives logits.
void add_terms_one_by_one(Graph& graph) {
  for (std::size_t found = 1; found > 0;) {
    Rewriter rw(graph);
    for (NodeId n = 0; n < rw.nodes().size(); ++n) {
      if (!rw.op<Accumulate>(n)) continue;
      const ValueId terms = rw.node(n).inputs[1];
      const NodeId add = rw.producer<Add>(terms);
      if (add == no_node || rw.only_use<Accumulate>(terms) != n) continue;
      const ValueId x = rw.node(add).inputs[0], y = rw.node(add).inputs[1];
      if (rw.type(x) != rw.type(terms) || rw.type(y) != rw.type(terms)) continue;
      rw.replace({add, n}, n, [&rw, &graph, n, x, y] {
        const Node& node = rw.node(n);
        const Value sum = graph.apply1(Accumulate{}, {rw.value(node.inputs[0]), rw.value(x)});
        return Rewriter::Substitutes{
            {node.outputs[0], graph.apply1(Accumulate{}, {sum, rw.value(y)})}};
      });
    }
    found = rw.commit();
  }
}

// The product that only sum n reads and that can be added to the sum where it is computed.
std::optional<NodeId> product_of(const Rewriter& rw, NodeId n) {
  const ValueId sum = rw.node(n).inputs[0], term = rw.node(n).inputs[1];
  const NodeId product = rw.producer<MatMul>(term);
  if (product == no_node || rw.only_use<Accumulate>(term) != n) return std::nullopt;
  if (rw.node(product).inputs.size() != 2 || rw.type(term).dtype != DType::f32) return std::nullopt;
  // Nobody may read the sum in between, nor may it be computed only there.
  if (rw.uses(sum).size() != 1) return std::nullopt;
  const NodeId before = rw.producer(sum);
  if (before != no_node && before > product) return std::nullopt;
  return product;
}

}  // namespace

std::size_t accumulating_products(Graph& graph) {
  add_terms_one_by_one(graph);
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!rw.op<Accumulate>(n)) continue;
    const std::optional<NodeId> product = product_of(rw, n);
    if (!product) continue;
    rw.replace({*product, n}, *product, [&rw, &graph, n, p = *product] {
      const Node& node = rw.node(p);
      const std::array operands{rw.value(node.inputs[0]), rw.value(node.inputs[1]),
                                rw.value(rw.node(n).inputs[0])};
      return Rewriter::Substitutes{{rw.node(n).outputs[0], graph.apply(*node.op, operands)[0]}};
    });
  }
  return rw.commit();
}

}  // namespace ridge
