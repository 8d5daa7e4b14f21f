#include <array>
#include <optional>

#include "ridge/passes/heads.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// Attention as the model writes it: softmax(mask(scale * q k^T)) v on heads [B, H, S, d], with the
// query heads of a group as rows of one taller matrix.
struct Attended {
  std::vector<NodeId> nodes;
  ValueId q, k, v;  // [B, H, S, d], [B, KV, S, d], [B, KV, S, d]
  ValueId y;        // [B, S, H * d]
  float scale;
};

// Walks up from a value through nodes that nothing else uses.
class Climb {
 public:
  Climb(const Rewriter& rw, ValueId from) : rw_(rw), at_(from) {}

  // Passes the T that computes the value; false, and stays, if another operator does or the value
  // is used elsewhere too.
  template <class T>
  bool up(std::size_t input = 0) {
    const NodeId n = rw_.producer<T>(at_);
    if (n == no_node || (!nodes_.empty() && rw_.uses(at_).size() != 1) || rw_.is_readable(at_))
      return false;
    nodes_.push_back(n);
    at_ = rw_.node(n).inputs[input];
    return true;
  }
  ValueId at() const { return at_; }
  NodeId last() const { return nodes_.back(); }
  const std::vector<NodeId>& nodes() const { return nodes_; }

 private:
  const Rewriter& rw_;
  ValueId at_;
  std::vector<NodeId> nodes_;
};

std::optional<Attended> attention_at(const Rewriter& rw, NodeId n) {
  Climb climb(rw, rw.node(n).outputs[0]);
  if (!climb.up<Reshape>()) return std::nullopt;
  if (!climb.up<Permute>() || rw.op<Permute>(climb.last())->order != swap_middle)
    return std::nullopt;
  climb.up<Reshape>();  // of groups to heads; without groups there is none
  if (!climb.up<MatMul>() || *rw.op<MatMul>(climb.last()) != MatMul{.causal = CausalPart::lhs})
    return std::nullopt;
  Attended found{.nodes = {},
                 .q = 0,
                 .k = 0,
                 .v = rw.node(climb.last()).inputs[1],
                 .y = rw.node(n).outputs[0],
                 .scale = 1.0f};
  climb.up<Reshape>();
  if (!climb.up<Softmax>() || !climb.up<CausalMask>() ||
      *rw.op<CausalMask>(climb.last()) != CausalMask{})
    return std::nullopt;
  climb.up<Reshape>();
  if (climb.up<Scale>()) found.scale = rw.op<Scale>(climb.last())->factor;
  if (!climb.up<MatMul>() ||
      *rw.op<MatMul>(climb.last()) != MatMul{.trans_b = true, .causal = CausalPart::output})
    return std::nullopt;
  found.k = rw.node(climb.last()).inputs[1];
  climb.up<Reshape>();
  found.q = climb.at();
  found.nodes = climb.nodes();
  const bool heads = rw.type(found.q).shape.rank() == 4 && rw.type(found.k).shape.rank() == 4;
  return heads ? std::optional(found) : std::nullopt;
}

// Heads [B, heads, S, d] as rows [B, S, heads * d]: what they were cut from, or put together again.
Value token_major(Rewriter& rw, ValueId heads) {
  if (const auto rows = rows_of_heads(rw, heads)) return rw.value(*rows);
  const Shape& s = rw.type(heads).shape;
  return reshape(permute(rw.value(heads), swap_middle), {s[0], s[2], s[1] * s[3]});
}

}  // namespace

std::size_t flash_attention(Graph& graph, std::int64_t widest_head) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    if (!rw.op<Reshape>(n)) continue;
    const auto found = attention_at(rw, n);
    if (!found) continue;
    const Shape &q = rw.type(found->q).shape, &k = rw.type(found->k).shape;
    if (q[3] > widest_head) continue;
    const Attention op{
        {.n_heads = q[1], .n_kv_heads = k[1], .head_dim = q[3], .scale = found->scale}};
    rw.replace(found->nodes, n, [&rw, &graph, op, a = *found] {
      const std::array inputs{token_major(rw, a.q), token_major(rw, a.k), token_major(rw, a.v)};
      return Rewriter::Substitutes{{a.y, graph.apply(op, inputs)[0]}};
    });
  }
  const std::size_t count = rw.commit();
  dead_nodes(graph);  // the cutting into heads that nobody reads any more
  return count;
}

}  // namespace ridge
