#include <array>
#include <optional>

#include "ridge/passes/heads.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// The rotary embedding that is all that v is used for.
NodeId only_rope(const Rewriter& rw, ValueId v) {
  const NodeId rope = rw.only_use<Rope>(v);
  return rope != no_node && !rw.op<Rope>(rope)->inverse ? rope : no_node;
}

// Rotates q and k where they are split from the packed projection.
void fold_into_split(Rewriter& rw, NodeId n) {
  const Node& node = rw.node(n);
  const SplitHeads* split = rw.op<SplitHeads>(n);
  if (!split || split->layout.rope_theta != 0) return;
  const NodeId q = only_rope(rw, node.outputs[0]), k = only_rope(rw, node.outputs[1]);
  if (q == no_node || k == no_node || *rw.op<Rope>(q) != *rw.op<Rope>(k)) return;
  SplitHeads rotated = *split;
  rotated.layout.rope_theta = rw.op<Rope>(q)->theta;
  rw.replace({n, q, k}, n, [&rw, &node, rotated, q, k] {
    const auto out = rw.graph().apply(rotated, std::array{rw.value(node.inputs[0])});
    return Rewriter::Substitutes{{rw.node(q).outputs[0], out[0]},
                                 {rw.node(k).outputs[0], out[1]},
                                 {node.outputs[2], out[2]}};
  });
}

// An operand of attention, traced to where its heads were cut.
struct Source {
  std::vector<NodeId> nodes;
  ValueId heads;               // [B, heads, S, d], before the rotary embedding
  std::optional<float> theta;  // of the rotary embedding, if there was one
};

std::optional<Source> source_of(const Rewriter& rw, ValueId rows) {
  const NodeId join = rw.producer<Reshape>(rows);
  if (join == no_node) return std::nullopt;
  const NodeId permute = rw.producer<Permute>(rw.node(join).inputs[0]);
  if (permute == no_node || rw.op<Permute>(permute)->order != swap_middle) return std::nullopt;
  Source source{{join, permute}, rw.node(permute).inputs[0], std::nullopt};
  if (const NodeId rope = rw.producer<Rope>(source.heads); rope != no_node) {
    source.nodes.push_back(rope);
    source.theta = rw.op<Rope>(rope)->theta;
    source.heads = rw.node(rope).inputs[0];
  }
  for (const NodeId n : source.nodes)
    if (rw.uses(rw.node(n).outputs[0]).size() != 1) return std::nullopt;
  return source;
}

// The packed rows of which q, k and v are the three parts, if they are.
std::optional<ValueId> packed_rows(const Rewriter& rw, ValueId q, ValueId k, ValueId v) {
  const NodeId split = rw.producer<SplitHeads>(q);
  if (split == no_node || rw.op<SplitHeads>(split)->layout.rope_theta != 0) return std::nullopt;
  if (rw.node(split).outputs != std::vector{q, k, v}) return std::nullopt;
  return rw.node(split).inputs[0];
}

// Attention rotates q and k as it loads them, and so reads the projections' rows as they are.
void fold_into_attention(Rewriter& rw, NodeId n) {
  const Attention* op = rw.op<Attention>(n);
  const Node& node = rw.node(n);
  if (!op || op->rope_theta != 0 || node.inputs.size() != 3) return;
  const auto q = source_of(rw, node.inputs[0]), k = source_of(rw, node.inputs[1]);
  if (!q || !k || !q->theta || q->theta != k->theta) return;
  std::vector<NodeId> nodes{n};
  nodes.insert(nodes.end(), q->nodes.begin(), q->nodes.end());
  nodes.insert(nodes.end(), k->nodes.begin(), k->nodes.end());
  std::vector<ValueId> operands;
  const auto v = source_of(rw, node.inputs[2]);
  if (const auto packed =
          v && !v->theta ? packed_rows(rw, q->heads, k->heads, v->heads) : std::nullopt) {
    nodes.insert(nodes.end(), v->nodes.begin(), v->nodes.end());
    operands = {*packed};
  } else {
    const auto q_rows = rows_of_heads(rw, q->heads), k_rows = rows_of_heads(rw, k->heads);
    if (!q_rows || !k_rows) return;
    operands = {*q_rows, *k_rows, node.inputs[2]};
  }
  Attention rotated = *op;
  rotated.rope_theta = *q->theta;
  rw.replace(nodes, n, [&rw, &node, rotated, operands] {
    std::vector<Value> inputs;
    for (const ValueId operand : operands) inputs.push_back(rw.value(operand));
    const auto out = rw.graph().apply(rotated, inputs);
    return Rewriter::Substitutes{{node.outputs[0], out[0]}, {node.outputs[1], out[1]}};
  });
}

}  // namespace

std::size_t fold_rope(Graph& graph) {
  Rewriter attention(graph);
  for (NodeId n = 0; n < attention.nodes().size(); ++n) fold_into_attention(attention, n);
  std::size_t count = attention.commit();
  dead_nodes(graph);
  Rewriter split(graph);
  for (NodeId n = 0; n < split.nodes().size(); ++n) fold_into_split(split, n);
  count += split.commit();
  return count;
}

}  // namespace ridge
