#include "ridge/passes/freeze.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// By node: whether it computes what is the same in every run.
std::vector<bool> constant_nodes(const Graph& graph) {
  const Lifetimes life = lifetimes_of(graph);
  const std::vector<bool> updated = updated_storages(graph, life);
  const auto is_updated = [&](ValueId id) { return updated[life.storage[id]]; };
  std::vector<bool> constant(graph.value_count(), false), nodes;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    constant[id] = info.persistent && info.role != Role::input && !is_updated(id);
  }
  for (const Node& node : graph.nodes()) {
    nodes.push_back(std::ranges::all_of(node.inputs, [&](ValueId in) { return constant[in]; }) &&
                    std::ranges::none_of(node.outputs, is_updated));
    for (const ValueId out : node.outputs) constant[out] = nodes.back();
  }
  return nodes;
}

// Which of the two graphs has a node; both may have a free one.
struct Sides {
  std::vector<bool> runs, sets_up;
  std::vector<ValueId> frontier;
};

Sides sides_of(const Graph& graph) {
  const std::size_t count = graph.nodes().size();
  Sides sides{std::vector<bool>(count), std::vector<bool>(count), {}};
  const std::vector<bool> constant = constant_nodes(graph);
  std::vector<bool> read(graph.value_count()), computed(graph.value_count());  // by either side
  for (auto n = static_cast<NodeId>(count); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    const bool is_read = std::ranges::any_of(
        node.outputs, [&](ValueId out) { return read[out] || graph.info(out).kept; });
    sides.runs[n] = !constant[n] || (only_renames(*node.op) && is_read);
    if (sides.runs[n])
      for (const ValueId in : node.inputs) read[in] = true;
    for (const ValueId out : node.outputs) {
      const bool is_frontier = !sides.runs[n] && (read[out] || graph.info(out).kept);
      if (is_frontier) sides.frontier.push_back(out);
      if (constant[n] && (is_frontier || computed[out])) sides.sets_up[n] = true;
    }
    if (sides.sets_up[n])
      for (const ValueId in : node.inputs) computed[in] = true;
  }
  std::ranges::reverse(sides.frontier);
  return sides;
}

void keep_nodes(Graph& graph, const std::vector<bool>& kept) {
  Rewriter rw(graph);
  for (NodeId n = 0; n < kept.size(); ++n)
    if (!kept[n]) rw.remove(n);
  rw.commit();
}

// Persistent values that no node uses, and nobody reads after the run, take no memory; but what
// lies in the memory of others, or holds others, and inputs if they are to be fed.
void give_up_unused(Graph& graph, bool keep_inputs) {
  std::vector<bool> used(graph.value_count(), false);
  for (const Node& node : graph.nodes())
    for (const ValueId in : node.inputs) used[in] = true;
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (const ValueId original = graph.info(id).copy_of; original != no_value && used[id])
      used[original] = true;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    if (!info.persistent || info.kept || used[id] || info.whole != no_value || !info.parts.empty())
      continue;
    if (info.role != Role::input || !keep_inputs) graph.give_up(id);
  }
}

}  // namespace

Frozen freeze(Graph& graph) {
  const Sides sides = sides_of(graph);
  Frozen frozen{graph.clone(), sides.frontier};
  const auto name_of_frozen = [&](ValueId id) {
    const ValueInfo& info = graph.info(id);
    if (!info.name.empty()) return info.name;
    const std::string& scope = graph.scope_name(graph.nodes()[info.producer].scope);
    return fmt::format("{}{}frozen.{}", scope, scope.empty() ? "" : ".", id);
  };
  std::vector<std::string> names;
  for (const ValueId id : frozen.values) names.push_back(name_of_frozen(id));
  for (std::size_t i = 0; i < names.size(); ++i) {
    frozen.setup->keep(frozen.setup->value(frozen.values[i]), names[i]);
    graph.make_buffer(frozen.values[i], names[i]);
  }
  keep_nodes(*frozen.setup, sides.sets_up);
  keep_nodes(graph, sides.runs);
  give_up_unused(*frozen.setup, false);
  give_up_unused(graph, true);
  return frozen;
}

}  // namespace ridge
