#include "ridge/analyze/fusion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

template <class... Ops>
bool is_any(const Node& node) {
  return (std::holds_alternative<Ops>(node.op->variant()) || ...);
}

// What every search below looks up.
struct View {
  explicit View(const Graph& g) : graph(g), roots(reshape_roots(g)), consumers(g.value_count()) {
    for (NodeId n = 0; n < g.nodes().size(); ++n) {
      if (is_any<Reshape, Slice>(node(n))) continue;
      for (const ValueId in : node(n).inputs) consumers[root(in)].push_back(n);
    }
    for (const ValueId value : kept_for_backward(g)) kept.insert(value);
  }

  const Node& node(NodeId n) const { return graph.nodes()[n]; }
  ValueId root(ValueId value) const { return roots[value]; }
  // The node that computes a value, through reshapes.
  NodeId producer(ValueId value) const { return graph.info(root(value)).producer; }
  std::int64_t bytes(ValueId value) const {
    return static_cast<std::int64_t>(graph.info(value).type.bytes());
  }

  const Graph& graph;
  std::vector<ValueId> roots;
  std::vector<std::vector<NodeId>> consumers;  // by root; without reshapes
  std::set<ValueId> kept;
};

// The nodes that differentiate any of `forward`, or a reshape of the same values.
std::vector<NodeId> gradient_nodes(const View& view, const std::set<NodeId>& forward) {
  std::vector<NodeId> nodes;
  for (NodeId n = 0; n < view.graph.nodes().size(); ++n)
    if (!is_any<Reshape, Slice>(view.node(n)) && forward.contains(view.node(n).forward))
      nodes.push_back(n);
  return nodes;
}

// Replaces `nodes` by one kernel.
void add_group(Rewrite& rewrite, const View& view, std::span<const NodeId> nodes,
               std::span<const ValueId> dropped = {}) {
  if (nodes.empty()) return;
  rewrite.nodes.insert(rewrite.nodes.end(), nodes.begin(), nodes.end());
  rewrite.kernels_now += static_cast<std::int64_t>(nodes.size());
  ++rewrite.kernels_after;
  for (const NodeId n : nodes) rewrite.bytes_now += cost(view.graph, view.node(n)).bytes();
  rewrite.bytes_after += fused_bytes(view.graph, nodes, dropped);
}

void drop_activations(Rewrite& rewrite, const View& view, std::span<const ValueId> dropped) {
  for (const ValueId value : dropped)
    if (view.kept.contains(value)) rewrite.activation_bytes += view.bytes(value);
}

// The values that a softmax is computed from and gives, through operators of one operand, up to the
// products at both ends.
std::set<ValueId> score_values(const View& view, NodeId softmax) {
  std::set<ValueId> scores{view.root(view.node(softmax).inputs[0]), view.node(softmax).outputs[0]};
  for (bool grown = true; grown;) {
    grown = false;
    for (NodeId n = 0; n < view.graph.nodes().size(); ++n) {
      const Node& node = view.node(n);
      if (node.phase != Phase::forward || !is_any<Scale, CausalMask, Softmax, Cast>(node)) continue;
      const ValueId in = view.root(node.inputs[0]), out = node.outputs[0];
      if (scores.contains(in) != scores.contains(out)) {
        scores.insert({in, out});
        grown = true;
      }
    }
  }
  return scores;
}

Rewrite flash_attention(const View& view) {
  Rewrite rewrite{
      .name = "flash attention", .subject = "attention scores", .passes = "flash-attention"};
  for (NodeId softmax = 0; softmax < view.graph.nodes().size(); ++softmax) {
    if (!is_any<Softmax>(view.node(softmax))) continue;
    const std::set<ValueId> scores = score_values(view, softmax);
    std::set<NodeId> forward;
    std::int64_t first_product = 0, products = 0, output_bytes = 0;
    for (NodeId n = 0; n < view.graph.nodes().size(); ++n) {
      const Node& node = view.node(n);
      if (node.phase != Phase::forward || is_any<Reshape, Slice>(node)) continue;
      const auto is_score = [&](ValueId v) { return scores.contains(view.root(v)); };
      const bool makes = std::ranges::any_of(node.outputs, is_score);
      if (!makes && !std::ranges::any_of(node.inputs, is_score)) continue;
      forward.insert(n);
      if (!is_any<MatMul>(node)) continue;
      ++products;
      if (makes)
        first_product = cost(view.graph, node).causal_flops;
      else
        output_bytes = view.bytes(node.outputs[0]);
    }
    if (products < 2) continue;  // some other softmax
    const std::vector<ValueId> dropped(scores.begin(), scores.end());
    const std::vector<NodeId> nodes(forward.begin(), forward.end());
    const std::vector<NodeId> gradient = gradient_nodes(view, forward);
    add_group(rewrite, view, nodes, dropped);
    add_group(rewrite, view, gradient, dropped);
    drop_activations(rewrite, view, dropped);
    if (gradient.empty()) continue;
    // The backward kernel makes the scores again, from the logarithm of each row's sum in f32, and
    // needs the attention's result.
    const Shape& shape = view.graph.info(view.node(softmax).outputs[0]).type.shape;
    rewrite.bytes_after += std::int64_t{2} * 4 * shape.rows() + output_bytes;
    rewrite.extra_flops += first_product;
  }
  return rewrite;
}

bool is_weight(const View& view, ValueId value) {
  const NodeId producer = view.producer(value);
  if (producer == no_node) return view.graph.info(view.root(value)).role == Role::parameter;
  return is_any<Cast>(view.node(producer)) && is_weight(view, view.node(producer).inputs[0]);
}

std::string last_component(const std::string& scope) {
  return scope.substr(scope.rfind('.') + 1);  // npos + 1 is 0
}

// Products that project one input by several weights.
std::vector<Rewrite> merged_projections(const View& view) {
  std::map<std::string, Rewrite> by_name;
  for (ValueId input = 0; input < view.graph.value_count(); ++input) {
    std::vector<NodeId> products;
    std::vector<std::string> names;
    std::set<NodeId> forward;
    for (const NodeId n : view.consumers[input]) {
      const Node& node = view.node(n);
      if (node.phase != Phase::forward || !is_any<MatMul>(node)) continue;
      if (view.root(node.inputs[0]) != input || !is_weight(view, node.inputs[1])) continue;
      products.push_back(n);
      names.push_back(last_component(view.graph.scope_name(node.scope)));
      // Autodiff adds up the gradients by the input where it was reshaped.
      forward.insert({n, view.graph.info(node.inputs[0]).producer});
    }
    if (products.size() < 2) continue;
    forward.erase(no_node);
    forward.erase(view.producer(input));
    std::vector<NodeId> by_input, by_weight;
    for (const NodeId n : gradient_nodes(view, forward)) {
      const auto reads_input = [&](ValueId v) { return view.root(v) == input; };
      const bool of_weight = std::ranges::any_of(view.node(n).inputs, reads_input);
      (of_weight ? by_weight : by_input).push_back(n);
    }
    Rewrite& rewrite = by_name[fmt::format("{}", fmt::join(names, ", "))];
    add_group(rewrite, view, products);
    add_group(rewrite, view, by_input);
    add_group(rewrite, view, by_weight);
  }
  std::vector<Rewrite> rewrites;
  for (auto& [names, rewrite] : by_name) {
    rewrite.name = "one product for " + names;
    rewrite.passes = "fuse-qkv,fuse-gate-up";
    rewrite.subject = "projections " + names;
    rewrites.push_back(std::move(rewrite));
  }
  return rewrites;
}

Rewrite swiglu(const View& view) {
  Rewrite rewrite{
      .name = "SwiGLU in one kernel", .subject = "SwiGLU activation", .passes = "swiglu"};
  for (NodeId product = 0; product < view.graph.nodes().size(); ++product) {
    const Node& node = view.node(product);
    if (node.phase != Phase::forward || !is_any<Mul>(node)) continue;
    for (const ValueId in : node.inputs) {
      const NodeId silu = view.producer(in);
      if (silu == no_node || !is_any<Silu>(view.node(silu))) continue;
      const std::vector<ValueId> dropped{view.root(in)};
      const std::vector<NodeId> gradient = gradient_nodes(view, {silu, product});
      add_group(rewrite, view, std::vector{silu, product}, dropped);
      add_group(rewrite, view, gradient, dropped);
      drop_activations(rewrite, view, dropped);
      if (!gradient.empty()) rewrite.extra_flops += cost(view.graph, view.node(silu)).flops;
    }
  }
  return rewrite;
}

Rewrite residual_norm(const View& view) {
  Rewrite rewrite{.name = "residual with norm",
                  .subject = "residual sums and norms",
                  .passes = "residual-norm"};
  for (NodeId norm = 0; norm < view.graph.nodes().size(); ++norm) {
    if (!is_any<RmsNorm>(view.node(norm))) continue;
    const NodeId sum = view.producer(view.node(norm).inputs[0]);
    if (sum == no_node || !is_any<Add>(view.node(sum))) continue;
    add_group(rewrite, view, std::vector{sum, norm});
    // The norm's gradient, and its sum with the one that came past the norm.
    add_group(rewrite, view, gradient_nodes(view, {norm}));
  }
  return rewrite;
}

template <class... T>
std::vector<NodeId> all_of(const View& view) {
  std::vector<NodeId> nodes;
  for (NodeId n = 0; n < view.graph.nodes().size(); ++n)
    if (is_any<T...>(view.node(n))) nodes.push_back(n);
  return nodes;
}

Rewrite one_optimizer_kernel(const View& view) {
  Rewrite rewrite{
      .name = "one optimizer kernel", .subject = "parameter updates", .passes = "fuse-optimizer"};
  rewrite.nodes = all_of<AdamW, Sgd>(view);
  rewrite.kernels_now = static_cast<std::int64_t>(rewrite.nodes.size());
  rewrite.kernels_after = 1;
  for (const NodeId n : rewrite.nodes) rewrite.bytes_now += cost(view.graph, view.node(n)).bytes();
  rewrite.bytes_after = rewrite.bytes_now;
  return rewrite;
}

Rewrite strided_heads(const View& view) {
  Rewrite rewrite{
      .name = "strided heads", .subject = "permutes", .passes = "flash-attention,fold-rope"};
  rewrite.nodes = all_of<Permute>(view);
  rewrite.kernels_now = static_cast<std::int64_t>(rewrite.nodes.size());
  for (const NodeId n : rewrite.nodes) rewrite.bytes_now += cost(view.graph, view.node(n)).bytes();
  return rewrite;
}

}  // namespace

std::vector<ValueId> reshape_roots(const Graph& graph) {
  std::vector<ValueId> roots(graph.value_count());
  for (ValueId v = 0; v < roots.size(); ++v) roots[v] = v;
  for (const Node& node : graph.nodes())
    if (is_any<Reshape, Slice>(node)) roots[node.outputs[0]] = roots[node.inputs[0]];
  return roots;
}

std::vector<ValueId> kept_for_backward(const Graph& graph) {
  const std::vector<ValueId> roots = reshape_roots(graph);
  std::set<ValueId> kept;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::backward || is_any<Reshape, Slice>(node)) continue;
    for (const ValueId in : node.inputs) {
      const NodeId producer = graph.info(roots[in]).producer;
      if (producer != no_node && graph.nodes()[producer].phase == Phase::forward)
        kept.insert(roots[in]);
    }
  }
  return {kept.begin(), kept.end()};
}

std::int64_t fused_bytes(const Graph& graph, std::span<const NodeId> nodes,
                         std::span<const ValueId> dropped) {
  const std::vector<ValueId> roots = reshape_roots(graph);
  const std::set<NodeId> inside(nodes.begin(), nodes.end());
  std::set<ValueId> read, made, used_outside;
  for (NodeId n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (is_any<Reshape, Slice>(node)) continue;
    for (const ValueId in : node.inputs)
      (inside.contains(n) ? read : used_outside).insert(roots[in]);
    if (inside.contains(n)) made.insert(node.outputs.begin(), node.outputs.end());
  }
  std::set<ValueId> moved;
  for (const ValueId value : read)
    if (!made.contains(value)) moved.insert(value);
  for (const ValueId value : made)
    if (used_outside.contains(value) || graph.info(value).kept) moved.insert(value);
  for (const ValueId value : dropped) moved.erase(value);
  std::int64_t bytes = 0;
  for (const ValueId value : moved)
    bytes += static_cast<std::int64_t>(graph.info(value).type.bytes());
  return bytes;
}

std::vector<Rewrite> possible_rewrites(const Graph& graph) {
  const View view(graph);
  std::vector<Rewrite> found = merged_projections(view);
  for (Rewrite& rewrite : std::vector{flash_attention(view), swiglu(view), residual_norm(view),
                                      one_optimizer_kernel(view), strided_heads(view)})
    found.push_back(std::move(rewrite));
  std::erase_if(found, [](const Rewrite& r) {
    return r.nodes.empty() || (r.bytes_saved() <= 0 && r.kernels_after >= r.kernels_now);
  });
  return found;
}

}  // namespace ridge
