#include "ridge/passes/freeze.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/passes/rewrite.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {
namespace {

// The role of a frozen value: input if it is a conversion of an input, else buffer.
Role role_of_frozen(const Graph& graph, ValueId id) {
  NodeId producer = graph.info(id).producer;
  while (producer != no_node && is_conversion(*graph.nodes()[producer].op)) {
    id = graph.nodes()[producer].inputs[0];
    producer = graph.info(id).producer;
  }
  return graph.info(id).role == Role::input ? Role::input : Role::buffer;
}

// By node: whether it computes what is the same in every run.
std::vector<bool> constant_nodes(const Graph& graph, FrozenInputs inputs) {
  const Lifetimes life = lifetimes_of(graph);
  const std::vector<bool> updated = updated_storages(graph, life);
  const auto is_updated = [&](ValueId id) { return updated[life.storage[id]]; };
  std::vector<bool> constant(graph.value_count(), false), given = constant, nodes;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    constant[id] = info.persistent && info.role != Role::input && !is_updated(id);
    given[id] = inputs == FrozenInputs::conversions && info.persistent &&
                info.role == Role::input && !is_updated(id);
  }
  for (const Node& node : graph.nodes()) {
    if (is_conversion(*node.op) && given[node.inputs[0]]) {
      nodes.push_back(given[node.outputs[0]] = true);
      continue;
    }
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

Sides sides_of(const Graph& graph, FrozenInputs inputs) {
  const std::size_t count = graph.nodes().size();
  Sides sides{std::vector<bool>(count), std::vector<bool>(count), {}};
  const std::vector<bool> constant = constant_nodes(graph, inputs);
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
// lies in the memory of others, or holds others, and inputs that are fed to every run, since the
// setup graph is not what reads them.
void give_up_unused(Graph& graph, const Graph* setup = nullptr) {
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
    const bool is_fed = setup && info.role == Role::input && !setup->info(id).persistent;
    if (!is_fed) graph.give_up(id);
  }
}

}  // namespace

Frozen freeze(Graph& graph, FrozenInputs inputs) {
  const Sides sides = sides_of(graph, inputs);
  Frozen frozen{graph.clone(), sides.frontier};
  const auto name_of_frozen = [&](ValueId id) {
    const ValueInfo& info = graph.info(id);
    if (!info.name.empty()) return info.name;
    const std::string& scope = graph.scope_name(graph.nodes()[info.producer].scope);
    return fmt::format("{}{}frozen.{}", scope, scope.empty() ? "" : ".", id);
  };
  std::vector<std::pair<std::string, Role>> descriptions;
  for (const ValueId id : frozen.values)
    descriptions.emplace_back(name_of_frozen(id), role_of_frozen(graph, id));
  for (std::size_t i = 0; i < descriptions.size(); ++i) {
    const auto& [name, role] = descriptions[i];
    frozen.setup->keep(frozen.setup->value(frozen.values[i]), name);
    graph.make_persistent(frozen.values[i], name, role);
  }
  keep_nodes(*frozen.setup, sides.sets_up);
  keep_nodes(graph, sides.runs);
  give_up_unused(*frozen.setup);
  give_up_unused(graph, frozen.setup.get());
  return frozen;
}

}  // namespace ridge
