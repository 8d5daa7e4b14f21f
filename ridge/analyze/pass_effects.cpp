#include "ridge/analyze/pass_effects.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ridge/base/error.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

// What makes two nodes alike for a comparison of graphs: what they do, where, on which types.
std::string key_of(const Graph& graph, const Node& node) {
  std::string key =
      fmt::format("{} {} {}", name_of(*node.op), graph.scope_name(node.scope), name_of(node.phase));
  for (const auto* ids : {&node.inputs, &node.outputs})
    for (const ValueId id : *ids) key += " " + graph.info(id).type.to_string();
  return key;
}

std::map<std::string, std::vector<NodeId>> by_key(const Graph& graph) {
  std::map<std::string, std::vector<NodeId>> nodes;
  for (NodeId n = 0; n < graph.nodes().size(); ++n)
    if (!only_renames(*graph.nodes()[n].op)) nodes[key_of(graph, graph.nodes()[n])].push_back(n);
  return nodes;
}

// The nodes of `a` that have no like in `b`.
std::vector<NodeId> without_like(const std::map<std::string, std::vector<NodeId>>& a,
                                 const std::map<std::string, std::vector<NodeId>>& b) {
  std::vector<NodeId> alone;
  for (const auto& [key, nodes] : a) {
    const auto found = b.find(key);
    const std::size_t alike = found == b.end() ? 0 : found->second.size();
    for (std::size_t i = alike; i < nodes.size(); ++i) alone.push_back(nodes[i]);
  }
  std::ranges::sort(alone);
  return alone;
}

std::int64_t bytes_of(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::int64_t bytes = 0;
  for (const NodeId n : nodes) bytes += cost(graph, graph.nodes()[n]).bytes();
  return bytes;
}

// Adds names to --enable-pass, one by one.
void enable(RunOptions& options, std::string_view name) {
  options.enable_pass += fmt::format("{}{}", options.enable_pass.empty() ? "" : ",", name);
}

// Whether a pass finds nothing itself, so that what its name enables is the work of those it needs.
bool finds_nothing(const Pass& pass, RunOptions with_needs, const Target& target,
                   const std::map<std::string, std::vector<NodeId>>& nodes_after) {
  for (const std::string_view name : pass.needs)
    if (!name.empty()) enable(with_needs, name);
  Graph graph;
  build_graph(graph, with_needs, target);
  const auto nodes = by_key(graph);
  return without_like(nodes, nodes_after).empty() && without_like(nodes_after, nodes).empty();
}

std::int64_t kept_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const ValueId value : kept_for_backward(graph))
    bytes += static_cast<std::int64_t>(graph.info(value).type.bytes());
  return bytes;
}

}  // namespace

std::vector<ValueId> kept_for_backward(const Graph& graph) {
  std::vector<ValueId> roots(graph.value_count());  // by value: whose memory it shares
  for (ValueId v = 0; v < roots.size(); ++v) roots[v] = v;
  for (const Node& node : graph.nodes())
    if (only_renames(*node.op)) roots[node.outputs[0]] = roots[node.inputs[0]];
  std::set<ValueId> kept;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::backward || only_renames(*node.op)) continue;
    for (const ValueId in : node.inputs) {
      const NodeId producer = graph.info(roots[in]).producer;
      if (producer != no_node && graph.nodes()[producer].phase == Phase::forward)
        kept.insert(roots[in]);
    }
  }
  return {kept.begin(), kept.end()};
}

std::vector<PassEffect> pass_effects(const RunOptions& options, Device& device,
                                     const Graph& graph) {
  const Schedule schedule = options.schedule(device.target());
  const StepPlan before = plan_step(options, device);
  const auto nodes_before = by_key(graph);
  const std::int64_t kept_before = kept_bytes(graph);
  std::vector<PassEffect> effects;
  for (const Pass& pass : passes()) {
    if (pass.chosen_by != ChosenBy::schedule || !pass.apply || schedule.has(pass.name)) continue;
    if (pass.where && *pass.where != device.target().kind) continue;
    if (pass.use && *pass.use != schedule.use) continue;
    RunOptions with = options;
    enable(with, pass.name);
    Graph after;
    try {
      if (!with.schedule(device.target()).has(pass.name)) continue;
      build_graph(after, with, device.target());
    } catch (const UsageError&) {  // it, or what it needs, was disabled by the user
      continue;
    }
    const auto nodes_after = by_key(after);
    PassEffect effect{.pass = &pass,
                      .before = before,
                      .enable = std::string(pass.name),
                      .replaced = without_like(nodes_before, nodes_after)};
    const std::vector<NodeId> added = without_like(nodes_after, nodes_before);
    if (effect.replaced.empty() && added.empty()) continue;
    if (!pass.needs[0].empty() && finds_nothing(pass, options, device.target(), nodes_after))
      continue;
    effect.after = plan_step(with, device);
    std::set<std::string> names;
    for (const NodeId n : added) names.insert(std::string(name_of(*after.nodes()[n].op)));
    effect.added.assign(names.begin(), names.end());
    effect.replaced_bytes = bytes_of(graph, effect.replaced);
    effect.added_bytes = bytes_of(after, added);
    effect.activation_bytes = kept_before - kept_bytes(after);
    effects.push_back(std::move(effect));
  }
  return effects;
}

}  // namespace ridge
