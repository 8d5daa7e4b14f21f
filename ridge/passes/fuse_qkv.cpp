#include <array>
#include <map>
#include <optional>
#include <vector>

#include "ridge/passes/heads.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/projections.h"

namespace ridge {
namespace {

// A projection whose rows are then cut into heads: reshape to [B, S, heads, d], permute to
// [B, heads, S, d].
struct Heads {
  Projection projection;
  std::vector<NodeId> nodes;  // all of it
  ValueId split;              // [B, heads, S, d]
  std::int64_t count, dim;
};

std::optional<Heads> heads_at(const Rewriter& rw, NodeId n) {
  const Permute* permute = rw.op<Permute>(n);
  if (!permute || permute->order != swap_middle) return std::nullopt;
  const ValueId rows = rw.node(n).inputs[0];
  const NodeId cut = rw.producer<Reshape>(rows);
  if (cut == no_node || rw.only_use<Permute>(rows) == no_node) return std::nullopt;
  const ValueId projected = rw.node(cut).inputs[0];
  const auto projection = projection_of(rw, projected);
  if (!projection || rw.only_use<Reshape>(projected) == no_node) return std::nullopt;
  Heads heads{*projection, projection->nodes, rw.node(n).outputs[0], rw.type(rows).shape[-2],
              rw.type(rows).shape[-1]};
  heads.nodes.insert(heads.nodes.end(), {cut, n});
  return heads;
}

void fuse(Rewriter& rw, const Heads& q, const Heads& k, const Heads& v) {
  std::vector<NodeId> nodes;
  for (const Heads* heads : {&q, &k, &v})
    nodes.insert(nodes.end(), heads->nodes.begin(), heads->nodes.end());
  rw.replace(nodes, q.projection.nodes.back(), [&rw, q, k, v] {
    const Value packed =
        apply_packed(rw, std::array{q.projection, k.projection, v.projection}, "qkv_proj");
    const SplitHeads split{{.n_heads = q.count, .n_kv_heads = k.count, .head_dim = q.dim}};
    const std::vector<Value> out = rw.graph().apply(split, std::array{packed});
    return Rewriter::Substitutes{{q.split, out[0]}, {k.split, out[1]}, {v.split, out[2]}};
  });
}

}  // namespace

// Three projections of one value into heads of one size, in their order, are taken for queries,
// keys and values.
std::size_t fuse_qkv(Graph& graph) {
  Rewriter rw(graph);
  std::map<ValueId, std::vector<Heads>> by_operand;
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (auto heads = heads_at(rw, n)) by_operand[heads->projection.x].push_back(std::move(*heads));
  for (const auto& [x, heads] : by_operand) {
    if (heads.size() != 3) continue;
    const Heads &q = heads[0], &k = heads[1], &v = heads[2];
    if (k.count == v.count && q.dim == k.dim && k.dim == v.dim) fuse(rw, q, k, v);
  }
  return rw.commit();
}

}  // namespace ridge
