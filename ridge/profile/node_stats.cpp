#include "ridge/profile/node_stats.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge {

std::string node_name(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes()[id];
  const std::string& scope = graph.scope_name(node.scope);
  return fmt::format("{}{}{}{}", scope, scope.empty() ? "" : ": ", name_of(*node.op),
                     node.phase == Phase::backward ? " (backward)" : "");
}

std::vector<NodeStats> node_stats(const Recording& recording) {
  const Graph& graph = *recording.graph;
  std::vector<NodeStats> by_node(graph.nodes().size());
  for (const Recording::NodeRun& run : recording.nodes) {
    NodeStats& stats = by_node[run.node];
    const std::int64_t ns = run.time_ns();
    stats.min_ns = stats.calls == 0 ? ns : std::min(stats.min_ns, ns);
    stats.max_ns = std::max(stats.max_ns, ns);
    stats.total_ns += ns;
    ++stats.calls;
  }
  std::vector<NodeStats> ran;
  for (NodeId n = 0; n < by_node.size(); ++n) {
    if (by_node[n].calls == 0) continue;
    by_node[n].node = n;
    by_node[n].cost = cost(graph, graph.nodes()[n]);
    ran.push_back(by_node[n]);
  }
  return ran;
}

StepTime step_time(const Recording& recording) {
  StepTime time;
  std::int64_t phases_ns = 0;
  for (const Recording::Step& step : recording.steps) {
    ++time.steps;
    time.total_ns += step.end_ns - step.begin_ns;
  }
  for (const Recording::PhaseRun& phase : recording.phases)
    phases_ns += phase.end_ns - phase.begin_ns;
  for (const Recording::NodeRun& run : recording.nodes) time.nodes_ns += run.time_ns();
  time.between_nodes_ns = phases_ns - time.nodes_ns;
  time.outside_phases_ns = time.total_ns - phases_ns;
  return time;
}

}  // namespace ridge
