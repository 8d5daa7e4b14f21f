#include "ridge/exercise/defects.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "ridge/ops/op.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// A product of a dense layer: of rows[B S, K] with a weight or, with both operands rows, the
// gradient of the weight.
bool is_dense(const Rewriter& rw, NodeId n, std::int64_t rows) {
  const auto* product = rw.op<MatMul>(n);
  if (!product || product->causal != CausalPart::none || rw.node(n).inputs.size() != 2)
    return false;
  const Shape& a = rw.type(rw.node(n).inputs[0]).shape;
  const Shape& b = rw.type(rw.node(n).inputs[1]).shape;
  return a.rank() == 2 && b.rank() == 2 && a[0] == rows;
}

// The same product, position by position.
struct SequenceFirst {
  std::int64_t batch, seq;

  Value product(Value a, Value b, const MatMul& op) const {
    Graph& graph = *a.graph;
    if (op.trans_a) {  // a weight's gradient, summed over all positions in the end
      const Value each = matmul(to(a), to(b), op);
      return reshape(sum_to(each, {1, each.shape()[1], each.shape()[2]}),
                     {each.shape()[1], each.shape()[2]});
    }
    const Value one = reshape(b, {1, b.shape()[0], b.shape()[1]});
    const Value weights = mul(fill(graph, {b.dtype(), {seq, 1, 1}}, 1.0f), one);
    return back(matmul(to(a), weights, op));
  }
  Value to(Value rows) const {  // [B S, K] -> [S, B, K]
    return permute(reshape(rows, {batch, seq, rows.shape()[1]}), {1, 0, 2});
  }
  Value back(Value x) const { return reshape(permute(x, {1, 0, 2}), {batch * seq, x.shape()[2]}); }
};

// Whether a value is a gradient that the optimizer takes, or a sum of such.
bool reaches_optimizer(const Rewriter& rw, ValueId v) {
  return rw.info(v).role == Role::gradient || std::ranges::any_of(rw.uses(v), [&](NodeId use) {
           return rw.node(use).phase == Phase::optimizer || rw.op<Accumulate>(use);
         });
}

// Sums and slices of zeros need no help to be zero.
bool is_zero_of_zeros(const Rewriter& rw, NodeId n) {
  return rw.op<Accumulate>(n) || rw.op<Slice>(n);
}

}  // namespace

std::size_t forget_weight_scale(Graph& graph) {
  std::size_t changed = 0;
  for (const Value& parameter : graph.parameters()) {
    if (graph.info(parameter.id).init.kind != Init::Kind::normal) continue;
    const auto inner = static_cast<float>(parameter.shape()[-1]);
    graph.set_init(parameter, Init::normal(std::sqrt(inner)));
    ++changed;
  }
  return changed;
}

std::size_t put_sequence_first(Graph& graph) {
  const Shape tokens = graph.find("tokens").shape();
  const SequenceFirst layout{tokens[0], tokens[1]};
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!is_dense(rw, n, layout.batch * layout.seq)) continue;
    rw.replace({n}, n, [&rw, n, layout] {
      const Node& node = rw.node(n);
      const Value y = layout.product(rw.value(node.inputs[0]), rw.value(node.inputs[1]),
                                     std::get<MatMul>(node.op->variant()));
      return Rewriter::Substitutes{{node.outputs[0], y}};
    });
  }
  return rw.commit();
}

std::size_t detach_loss(Graph& graph) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const Node& node = rw.node(n);
    // The logits stay readable, though the backward pass needs them no longer.
    if (rw.op<CrossEntropy>(n)) graph.keep(rw.value(node.inputs[0]), "logits");
    if (node.phase != Phase::backward || is_zero_of_zeros(rw, n)) continue;
    if (std::ranges::none_of(node.outputs, [&](ValueId v) { return reaches_optimizer(rw, v); }))
      continue;
    rw.replace({n}, n, [&rw, &graph, n] {
      Rewriter::Substitutes zeros;
      for (const ValueId out : rw.node(n).outputs)
        zeros.emplace_back(out, fill(graph, rw.type(out), 0.0f));
      return zeros;
    });
  }
  const std::size_t changed = rw.commit();
  dead_nodes(graph);
  return changed;
}

}  // namespace ridge
