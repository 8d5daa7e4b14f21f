#include "ridge/profile/flops_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

void add_parameters(const Graph& graph, FlopsReport& report) {
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (const ValueInfo& info = graph.info(id);
        info.role == Role::parameter && info.whole == no_value && info.copy_of == no_value)
      report.self[report.tree.of_scope[info.scope]].parameters += info.type.numel();
}

void add_nodes(const Recording& recording, std::optional<std::int32_t> step, FlopsReport& report) {
  const Graph& graph = *recording.graph;
  std::vector<std::optional<Cost>> costs(graph.nodes().size());
  for (const Recording::NodeRun& run : recording.nodes) {
    if (step && run.step != *step) continue;
    const Node& node = graph.nodes()[run.node];
    std::optional<Cost>& once = costs[run.node];
    if (!once) once = cost(graph, node);
    report.self[report.tree.of_scope[node.scope]].phases[static_cast<int>(node.phase)] += PhaseWork{
        .macs = once->macs, .flops = once->flops, .bytes = once->bytes(), .ns = run.time_ns()};
  }
}

void add_times(const Recording& recording, std::optional<std::int32_t> step, FlopsReport& report) {
  for (const Recording::Step& s : recording.steps) {
    if (step && s.step != *step) continue;
    if (report.steps++ == 0) report.first_step = s.step;
    report.last_step = s.step;
    report.step_ns += s.end_ns - s.begin_ns;
  }
  for (const Recording::PhaseRun& p : recording.phases)
    if (!step || p.step == *step)
      report.phase_ns[static_cast<int>(p.phase)] += p.end_ns - p.begin_ns;
}

}  // namespace

PhaseWork& PhaseWork::operator+=(const PhaseWork& other) {
  macs += other.macs;
  flops += other.flops;
  bytes += other.bytes;
  ns += other.ns;
  return *this;
}

double PhaseWork::flops_per_second() const {
  return ns > 0 ? static_cast<double>(flops) / (static_cast<double>(ns) * 1e-9) : 0;
}

ModuleWork& ModuleWork::operator+=(const ModuleWork& other) {
  parameters += other.parameters;
  for (int p = 0; p < 3; ++p) phases[p] += other.phases[p];
  return *this;
}

PhaseWork ModuleWork::all() const {
  PhaseWork sum;
  for (const PhaseWork& phase : phases) sum += phase;
  return sum;
}

FlopsReport flops_report(const Recording& recording, std::optional<std::int32_t> step) {
  FlopsReport report{.tree = module_tree(*recording.graph)};
  report.self.resize(report.tree.modules.size());
  add_parameters(*recording.graph, report);
  add_nodes(recording, step, report);
  add_times(recording, step, report);
  if (report.steps == 0 && step) {
    if (recording.steps.empty()) throw UsageError("step {}: no step was recorded", *step);
    throw UsageError("step {} was not recorded; steps {} to {} were", *step,
                     recording.steps.front().step, recording.steps.back().step);
  }
  report.total = report.self;
  add_submodules(report.tree, report.total);
  report.dropped = recording.dropped;
  return report;
}

nlohmann::ordered_json json_of(const FlopsReport& report) {
  using Json = nlohmann::ordered_json;
  const std::int64_t steps = std::max<std::int64_t>(report.steps, 1);
  const auto phase = [&](const PhaseWork& w) {
    return Json{{"macs", w.macs / steps},
                {"flops", w.flops / steps},
                {"bytes", w.bytes / steps},
                {"time_ns", static_cast<double>(w.ns) / static_cast<double>(steps)},
                {"flops_per_second", w.flops_per_second()}};
  };
  const auto work = [&](const ModuleWork& w) {
    Json json{{"parameters", w.parameters}, {"all", phase(w.all())}};
    for (const Phase p : {Phase::forward, Phase::backward, Phase::optimizer})
      json[std::string(name_of(p))] = phase(w.phases[static_cast<int>(p)]);
    return json;
  };
  const auto mean_ns = [&](std::int64_t ns) {
    return static_cast<double>(ns) / static_cast<double>(steps);
  };
  Json modules = Json::array();
  for (std::size_t m = 0; m < report.tree.modules.size(); ++m) {
    const Module& module = report.tree.modules[m];
    modules.push_back({{"index", m},
                       {"parent", m == 0 ? Json() : Json(module.parent)},
                       {"depth", module.depth},
                       {"name", module.name},
                       {"path", module.path},
                       {"total", work(report.total[m])},
                       {"self", work(report.self[m])}});
  }
  return Json{{"steps", report.steps},
              {"first_step", report.first_step},
              {"last_step", report.last_step},
              {"dropped_records", report.dropped},
              {"step_time_ns", mean_ns(report.step_ns)},
              {"forward_ns", mean_ns(report.phase_ns[0])},
              {"backward_ns", mean_ns(report.phase_ns[1])},
              {"optimizer_ns", mean_ns(report.phase_ns[2])},
              {"modules", modules}};
}

std::string modules_json(const FlopsReport& report) {
  return json_of(report).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace ridge
