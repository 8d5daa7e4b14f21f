#include <optional>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// The product of 16-bit operands whose result, reshaped or not, is only there to be converted to
// f32.
struct Widened {
  NodeId product = no_node, reshape = no_node, cast = no_node;

  std::vector<NodeId> nodes() const {
    if (reshape == no_node) return {product, cast};
    return {product, reshape, cast};
  }
};

std::optional<Widened> widened_at(const Rewriter& rw, NodeId n) {
  const MatMul* product = rw.op<MatMul>(n);
  if (!product) return std::nullopt;
  Widened found{.product = n};
  ValueId y = rw.node(n).outputs[0];
  if (!is_16_bit(rw.type(y).dtype)) return std::nullopt;
  found.reshape = rw.only_use<Reshape>(y);
  if (found.reshape != no_node) y = rw.node(found.reshape).outputs[0];
  found.cast = rw.only_use<Cast>(y);
  if (found.cast == no_node || rw.op<Cast>(found.cast)->to != DType::f32) return std::nullopt;
  if (rw.node(found.cast).phase != rw.node(n).phase) return std::nullopt;
  return found;
}

}  // namespace

// What is summed in f32 is written as f32: such as the gradients of weights that are f32. At the
// product's place, so that its operands need not wait for the conversion's.
std::size_t f32_products(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto found = widened_at(rw, n))
      rw.replace(found->nodes(), n, [&rw, widened = *found] {
        const Node& node = rw.node(widened.product);
        const ValueId result = rw.node(widened.cast).outputs[0];
        MatMul op = std::get<MatMul>(node.op->variant());
        op.out = DType::f32;
        const Value y = matmul(rw.value(node.inputs[0]), rw.value(node.inputs[1]), op);
        return Rewriter::Substitutes{{result, reshape(y, rw.type(result).shape)}};
      });
  return rw.commit();
}

}  // namespace ridge
