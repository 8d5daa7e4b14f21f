#include <array>
#include <optional>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// The product whose result, reshaped or not, is the first operand of node `gate`.
struct Before {
  NodeId product = no_node, reshape = no_node;

  std::vector<NodeId> nodes_with(NodeId gate) const {
    if (reshape == no_node) return {product, gate};
    return {product, reshape, gate};
  }
};

std::optional<Before> product_before(const Rewriter& rw, const Lifetimes& life, NodeId gate,
                                     const MatMul& kind) {
  ValueId v = rw.node(gate).inputs[0];
  Before found{.reshape = rw.producer<Reshape>(v)};
  if (found.reshape != no_node) {
    v = rw.node(found.reshape).inputs[0];
    if (rw.only_use<Reshape>(v) == no_node) return std::nullopt;
  }
  found.product = rw.producer<MatMul>(v);
  if (found.product == no_node || *rw.op<MatMul>(found.product) != kind) return std::nullopt;
  if (rw.type(v).shape.rank() != 2 || rw.is_readable(v)) return std::nullopt;
  if (rw.node(found.product).phase != rw.node(gate).phase) return std::nullopt;
  // Kernels read these as whole tensors lie, and slices may begin anywhere.
  for (const NodeId n : {found.product, gate})
    for (const ValueId in : rw.node(n).inputs)
      if (life.offset[in] % tensor_alignment != 0) return std::nullopt;
  // In between nothing may happen to what the product reads, nor to what the gate does.
  for (NodeId n = found.product + 1; n < gate; ++n)
    if (!rw.op<Reshape>(n)) return std::nullopt;
  return found;
}

Value rows_of(Value x) { return reshape(x, {x.shape().rows(), x.shape()[-1]}); }

void join_forward(Rewriter& rw, NodeId gate, const Before& before) {
  rw.replace(before.nodes_with(gate), gate, [&rw, gate, before] {
    const ValueId packed = rw.node(gate).inputs[0], y = rw.node(gate).outputs[0];
    const std::vector<ValueId>& in = rw.node(before.product).inputs;
    const std::vector<Value> out =
        rw.graph().apply(LinearSwiGlu{}, std::array{rw.value(in[0]), rw.value(in[1])});
    return Rewriter::Substitutes{{packed, reshape(out[0], rw.type(packed).shape)},
                                 {y, reshape(out[1], rw.type(y).shape)}};
  });
}

void join_backward(Rewriter& rw, NodeId gate, const Before& before) {
  rw.replace(before.nodes_with(gate), gate, [&rw, gate, before] {
    const auto& op = std::get<SwiGluGrad>(rw.node(gate).op->variant());
    const std::vector<ValueId>& in = rw.node(before.product).inputs;
    const std::vector<Value> out = rw.graph().apply(
        LinearSwiGluGrad{.in_place = op.in_place, .result = op.result},
        std::array{rw.value(in[0]), rw.value(in[1]), rows_of(rw.value(rw.node(gate).inputs[1]))});
    Rewriter::Substitutes substitutes;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const ValueId old = rw.node(gate).outputs[i];
      substitutes.emplace_back(old, reshape(out[i], rw.type(old).shape));
    }
    return substitutes;
  });
}

}  // namespace

// The gate takes what the product before it makes, forward and backward, where it has gate and up
// side by side.
std::size_t linear_swiglu(Graph& graph) {
  Rewriter rw(graph);
  const Lifetimes life = lifetimes_of(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const std::size_t operands = rw.node(n).inputs.size();
    if (rw.op<SwiGlu>(n) && operands == 1) {
      if (const auto before = product_before(rw, life, n, {.trans_b = true}))
        join_forward(rw, n, *before);
    } else if (rw.op<SwiGluGrad>(n) && operands == 2) {
      const ValueId dy = rw.node(n).inputs[0];
      if (rw.only_use<SwiGluGrad>(dy) == no_node) continue;
      if (const auto before = product_before(rw, life, n, {})) join_backward(rw, n, *before);
    }
  }
  return rw.commit();
}

}  // namespace ridge
