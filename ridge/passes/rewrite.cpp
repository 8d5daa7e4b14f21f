#include "ridge/passes/rewrite.h"

#include <algorithm>
#include <numeric>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {

Rewriter::Rewriter(Graph& graph)
    : graph_(graph),
      nodes_(graph.nodes()),
      producers_(graph.value_count(), no_node),
      uses_(graph.value_count()),
      claimed_(nodes_.size(), false),
      redirected_(graph.value_count()) {
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    for (const ValueId in : nodes_[n].inputs)
      if (uses_[in].empty() || uses_[in].back() != n) uses_[in].push_back(n);
    for (const ValueId out : nodes_[n].outputs) producers_[out] = n;
  }
  std::iota(redirected_.begin(), redirected_.end(), ValueId{0});
}

bool Rewriter::is_readable(ValueId v) const {
  const ValueInfo& info = graph_.info(v);
  return info.kept || info.persistent || info.role == Role::gradient;
}

std::vector<Value> Rewriter::values(std::span<const ValueId> ids) {
  std::vector<Value> values;
  for (const ValueId id : ids) values.push_back(value(id));
  return values;
}

Rewriter::Substitutes Rewriter::each(std::span<const ValueId> old, std::span<const Value> by) {
  Substitutes substitutes;
  for (std::size_t i = 0; i < old.size(); ++i) substitutes.emplace_back(old[i], by[i]);
  return substitutes;
}

void Rewriter::replace(std::vector<NodeId> nodes, NodeId at, std::function<Substitutes()> build) {
  for (const NodeId n : nodes) claimed_[n] = true;
  replacements_[at].push_back({std::move(nodes), std::move(build)});
}

// Gives the id `old` to what the nodes from `first` on compute as `by`, or, if they do not compute
// it or `old` is computed already, turns the later uses of `old` to it.
void Rewriter::take_over(ValueId old, Value by, NodeId first) {
  const NodeId producer = graph_.info(by.id).producer;
  const bool still_computed = graph_.info(old).producer != no_node;
  if (producer == no_node || producer < first || still_computed) {
    redirected_[old] = by.id;
    return;
  }
  graph_.set_dtype(old, by.dtype());
  for (Node& node : graph_.take_nodes(first)) {
    std::ranges::replace(node.inputs, by.id, old);
    std::ranges::replace(node.outputs, by.id, old);
    graph_.append(std::move(node));
  }
}

void Rewriter::repeat(NodeId n, NodeId at) {
  replace({}, at, [this, n, phase = node(at).phase] {
    const Node& old = node(n);
    const Scope scope(graph_, old.scope);
    const PhaseScope repeated(graph_, phase, moved_[n]);
    std::vector<Value> inputs = values(old.inputs);
    // What was updated in place is no more what it was.
    for (std::uint32_t o = 0; o < old.outputs.size(); ++o)
      if (const auto alias = aliased_input(*old.op, o, graph_.types_of(old.inputs));
          alias && !only_renames(*old.op) && info(old.inputs[alias->input]).persistent)
        inputs[alias->input] = value(old.outputs[o]);
    return each(old.outputs, graph_.apply(repetition_of(old.op), inputs));
  });
}

void Rewriter::build(NodeId at) {
  const auto found = replacements_.find(at);
  if (found == replacements_.end()) return;
  const Node& old = nodes_[at];
  const Scope scope(graph_, old.scope);
  const PhaseScope phase(graph_, old.phase, old.forward == no_node ? no_node : moved_[old.forward]);
  for (const Replacement& replacement : found->second) {
    const auto first = static_cast<NodeId>(graph_.nodes().size());
    for (const auto& [value, by] : replacement.build()) take_over(value, by, first);
    const auto last = static_cast<NodeId>(graph_.nodes().size());
    for (const NodeId n : replacement.nodes) moved_[n] = last > first ? last - 1 : no_node;
  }
}

void Rewriter::check_order() const {
  std::vector<bool> computed(graph_.value_count(), false);
  for (const Node& node : graph_.nodes()) {
    for (const ValueId in : node.inputs)
      if (!computed[in] && !graph_.info(in).persistent)
        throw Error("a pass left {} before the value {} that it uses", name_of(*node.op), in);
    for (const ValueId out : node.outputs) computed[out] = true;
  }
}

std::size_t Rewriter::commit() {
  graph_.take_nodes();
  moved_.assign(nodes_.size(), no_node);
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    build(n);
    if (claimed_[n]) continue;
    Node node = nodes_[n];
    for (ValueId& in : node.inputs) in = redirected_[in];
    if (node.forward != no_node) node.forward = moved_[node.forward];
    moved_[n] = static_cast<NodeId>(graph_.nodes().size());
    graph_.append(std::move(node));
  }
  check_order();
  std::size_t count = 0;
  for (const auto& [at, list] : replacements_) count += list.size();
  return count;
}

}  // namespace ridge
