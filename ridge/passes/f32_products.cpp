#include <optional>
#include <utility>
#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// The product of 16-bit operands whose result, moved or not, is only there to be converted to f32.
struct Widened {
  NodeId product = no_node;
  // What gives its elements another shape, or leaves some of them out.
  std::vector<NodeId> moves = {};
  NodeId cast = no_node;
};

// The node that alone uses v, if it moves elements and computes nothing.
NodeId move_of(const Rewriter& rw, ValueId v) {
  if (rw.uses(v).size() != 1 || rw.is_readable(v)) return no_node;
  const NodeId n = rw.uses(v).front();
  const Op* op = rw.op(n);
  return op && (only_renames(*op) || rw.op<Window>(n)) ? n : no_node;
}

std::optional<Widened> widened_at(const Rewriter& rw, NodeId n) {
  const MatMul* product = rw.op<MatMul>(n);
  if (!product) return std::nullopt;
  Widened found{.product = n};
  ValueId y = rw.node(n).outputs[0];
  if (!is_16_bit(rw.type(y).dtype)) return std::nullopt;
  for (NodeId move = move_of(rw, y); move != no_node; move = move_of(rw, y)) {
    found.moves.push_back(move);
    y = rw.node(move).outputs[0];
  }
  found.cast = rw.only_use<Cast>(y);
  if (found.cast == no_node || rw.op<Cast>(found.cast)->to != DType::f32) return std::nullopt;
  if (rw.node(found.cast).phase != rw.node(n).phase) return std::nullopt;
  return found;
}

// `nodes` leave; where `at` stood, `op` takes the operands of node `by`, and its result is `old`
// from there on.
void compute_instead(Rewriter& rw, std::vector<NodeId> nodes, NodeId at, NodeId by, const Op& op,
                     ValueId old) {
  rw.replace(std::move(nodes), at, [&rw, by, op, old] {
    const std::vector<Value> operands = rw.values(rw.node(by).inputs);
    return Rewriter::Substitutes{{old, rw.graph().apply(op, operands)[0]}};
  });
}

void widen(Rewriter& rw, const Widened& w) {
  MatMul product = *rw.op<MatMul>(w.product);
  product.out = DType::f32;
  const auto result = [&](NodeId n) { return rw.node(n).outputs[0]; };
  if (w.moves.empty())
    return compute_instead(rw, {w.product, w.cast}, w.product, w.product, product, result(w.cast));
  compute_instead(rw, {w.product}, w.product, w.product, product, result(w.product));
  const NodeId last = w.moves.back();
  for (const NodeId move : w.moves)
    if (move != last) compute_instead(rw, {move}, move, move, *rw.node(move).op, result(move));
  compute_instead(rw, {last, w.cast}, w.cast, last, *rw.node(last).op, result(w.cast));
}

}  // namespace

// What is summed in f32 is written as f32: such as the gradients of weights that are f32. At the
// product's place, so that its operands need not wait for the conversion's; what moves elements
// stays where it is.
std::size_t f32_products(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (const auto found = widened_at(rw, n)) widen(rw, *found);
  return rw.commit();
}

}  // namespace ridge
