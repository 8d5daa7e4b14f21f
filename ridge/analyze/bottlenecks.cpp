#include "ridge/analyze/bottlenecks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/device/data_sheets.h"
#include "ridge/graph/op_rules.h"
#include "ridge/profile/node_stats.h"

namespace ridge {
namespace {

// By how much an operator may exceed a ceiling for that to say that the ceiling was measured too
// low, because others were using the machine. More than that no measurement explains: the
// operator's time, or the ceiling, is wrong.
constexpr double believable = 1.5;

// Raises the ceilings that were exceeded believably, and tells of all that were.
class Exceeded {
 public:
  explicit Exceeded(const Graph& graph) : graph_(graph) {}

  // Whether a rate is above a ceiling by so little that it is the better one.
  bool raises(double seen, double ceiling, const std::string& what, const Node& node) {
    if (seen <= ceiling) return false;
    const bool is_flops = what.ends_with("FLOP/s");
    const std::string reached =
        fmt::format("{} in {} reached {:.1f} G{}/s", name_of(*node.op),
                    graph_.scope_name(node.scope), seen / 1e9, is_flops ? "FLOP" : "B");
    if (seen > believable * ceiling) {
      impossible_.try_emplace(
          what, fmt::format("{}, {:.1f} times the ceiling of {}: its time cannot be right, or the "
                            "ceiling was measured on a busy machine; it is left as it is",
                            reached, seen / ceiling, what));
      return false;
    }
    raised_[what] = fmt::format(
        "{}, above the ceiling of {} as it was measured, which is taken to be that: measure again "
        "with ridge roofline while the machine is idle",
        reached, what);
    return true;
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> all;
    for (const auto* notes : {&raised_, &impossible_})
      for (const auto& [what, note] : *notes) all.push_back(note);
    return all;
  }

 private:
  const Graph& graph_;
  std::map<std::string, std::string> raised_, impossible_;  // the last raise is the highest
};

void raise(Roof& roof, std::vector<std::string>& notes, const Recording& recording,
           const std::vector<NodeStats>& nodes) {
  const Graph& graph = *recording.graph;
  Exceeded exceeded(graph);
  for (const NodeStats& stats : nodes) {
    const Node& node = graph.nodes()[stats.node];
    const double seconds =
        static_cast<double>(stats.total_ns) * nano / static_cast<double>(stats.calls);
    if (seconds <= 0) continue;
    const ProductKind precision = compute_precision(graph, node, roof);
    const double flops = static_cast<double>(stats.cost.causal_flops) / seconds;
    if (exceeded.raises(flops, roof.flops(precision), fmt::format("{} FLOP/s", name_of(precision)),
                        node))
      roof.raise(precision, flops);
    const auto bytes = static_cast<std::uint64_t>(stats.cost.bytes());
    const std::string level = roof.level_of(bytes).name;
    const auto found = std::ranges::find(roof.levels, level, &Roof::Level::name);
    const double rate = static_cast<double>(bytes) / seconds;
    if (exceeded.raises(rate, found->bytes_per_second, level + " bandwidth", node))
      found->bytes_per_second = rate;
  }
  for (std::size_t i = roof.levels.size(); i-- > 1;)
    roof.levels[i - 1].bytes_per_second =
        std::max(roof.levels[i - 1].bytes_per_second, roof.levels[i].bytes_per_second);
  for (std::string& note : exceeded.notes()) notes.push_back(std::move(note));
}

NodeBottleneck of_node(const Graph& graph, const NodeStats& stats, const Roof& roof,
                       std::int64_t steps) {
  const Node& node = graph.nodes()[stats.node];
  NodeBottleneck result{.node = stats.node, .name = node_name(graph, stats.node)};
  const Roof::Level& level = roof.level_of(static_cast<std::uint64_t>(stats.cost.bytes()));
  result.level = level.name;
  Timed& t = result.timed;
  t.calls = static_cast<double>(stats.calls) / static_cast<double>(steps);
  t.seconds = static_cast<double>(stats.total_ns) * nano / static_cast<double>(steps);
  t.compute_floor = t.calls * static_cast<double>(stats.cost.causal_flops) /
                    roof.flops(compute_precision(graph, node, roof));
  t.memory_floor = t.calls * static_cast<double>(stats.cost.bytes()) / level.bytes_per_second;
  t.floor = std::max(t.compute_floor, t.memory_floor);
  t.cost = stats.cost * std::max<std::int64_t>(1, (stats.calls + steps / 2) / steps);
  const Bound bound = t.seconds < roof.launch_seconds * t.calls ? Bound::overhead
                      : t.compute_floor > t.memory_floor        ? Bound::compute
                                                                : Bound::memory;
  t.seconds_by_bound[static_cast<std::size_t>(bound)] = t.seconds;
  return result;
}

template <class Key>
std::vector<NamedTime> grouped(const std::vector<NodeBottleneck>& nodes, const Key& key) {
  std::map<std::string, Timed> groups;
  for (const NodeBottleneck& node : nodes) groups[key(node.node)] += node.timed;
  std::vector<NamedTime> result;
  for (const auto& [name, timed] : groups) result.push_back({name, timed});
  return result;
}

// The part that an operator is of wherever it stands; empty if that is not known.
std::string_view part_by_work(const Op& op) {
  switch (work_of(op)) {
    case WorkKind::attention:
      return "attention";
    case WorkKind::norm:
      return "norm";
    case WorkKind::convolution:
      return "convolutions";
    case WorkKind::product:
      return "linear layers";
    case WorkKind::elements:
    case WorkKind::renaming:
      break;
  }
  if (is_on_images(op)) return "pooling and resizing";
  return is_elementwise(op) ? "elementwise" : "";
}

}  // namespace

std::string_view name_of(Bound bound) {
  constexpr std::string_view names[] = {"compute", "memory", "overhead"};
  return names[static_cast<std::size_t>(bound)];
}

Timed& Timed::operator+=(const Timed& other) {
  calls += other.calls;
  seconds += other.seconds;
  compute_floor += other.compute_floor;
  memory_floor += other.memory_floor;
  floor += other.floor;
  for (std::size_t i = 0; i < seconds_by_bound.size(); ++i)
    seconds_by_bound[i] += other.seconds_by_bound[i];
  cost += other.cost;
  return *this;
}

double Timed::intensity() const {
  return over(static_cast<double>(cost.flops), static_cast<double>(cost.bytes()));
}

Bound Timed::bound() const {
  return static_cast<Bound>(std::ranges::max_element(seconds_by_bound) - seconds_by_bound.begin());
}

double BottleneckReport::flops_per_second() const {
  return over(static_cast<double>(all.cost.causal_flops), step_seconds);
}

double BottleneckReport::mfu() const { return over(all.compute_floor, step_seconds); }

ProductKind compute_precision(const Graph& graph, const Node& node, const Roof& roof) {
  const bool product = is_product(*node.op);
  const bool attention = work_of(*node.op) == WorkKind::attention;
  if (!product && !(attention && roof.kind == DeviceKind::gpu)) return ProductKind::f32;
  const DType dtype = graph.info(node.inputs[0]).type.dtype;
  const bool is_f32_product = dtype == DType::f32 && (product || roof.tf32);
  return is_f32_product ? roof.f32_products() : product_kind_of(dtype);
}

double BottleneckReport::vendor_mfu() const {
  return over(flops_per_second(), roof.vendor.flops_per_second.value_or(0));
}

std::string_view part_of(const Graph& graph, const Node& node) {
  if (node.phase == Phase::optimizer) return "optimizer";
  constexpr std::pair<ScopeKind, std::string_view> by_scope[] = {
      {ScopeKind::attention, "attention"},
      {ScopeKind::feed_forward, "feed-forward"},
      {ScopeKind::embedding, "embedding"},
      {ScopeKind::head, "head"}};
  for (const auto& [kind, part] : by_scope)
    if (graph.enclosing(node.scope, kind)) return part;
  if (const std::string_view part = part_by_work(*node.op); !part.empty()) return part;
  // What else a gradient takes, such as sums over a batch, is for what it differentiates.
  if (node.forward != no_node) return part_of(graph, graph.nodes()[node.forward]);
  return cost(graph, node).flops == 0 ? "data movement" : "other";
}

BottleneckReport analyze_bottlenecks(const Recording& recording, const Roof& roof,
                                     const Alternatives& alternatives) {
  const Graph& graph = *recording.graph;
  const StepTime time = step_time(recording);
  if (time.steps == 0)
    throw UsageError("the profile has no finished step: record at least one to find bottlenecks");
  const std::vector<NodeStats> nodes = node_stats(recording);
  const auto per_step = [&](std::int64_t total_ns) {
    return static_cast<double>(total_ns) * nano / static_cast<double>(time.steps);
  };
  BottleneckReport report{.steps = time.steps,
                          .step_seconds = per_step(time.total_ns),
                          .between_nodes = per_step(time.between_nodes_ns),
                          .outside_phases = per_step(time.outside_phases_ns),
                          .roof = roof};
  if (!roof.doubts.empty())
    report.notes.push_back(fmt::format("of the measured ceilings: {}", roof.doubts));
  raise(report.roof, report.notes, recording, nodes);
  const DataSheet* const sheet = data_sheet_of(roof.hardware);
  for (const NodeStats& stats : nodes) {
    report.nodes.push_back(of_node(graph, stats, report.roof, time.steps));
    report.all += report.nodes.back().timed;
    if (sheet)
      report.data_sheet_seconds +=
          static_cast<double>(report.nodes.back().timed.cost.causal_flops) /
          sheet->flops(compute_precision(graph, graph.nodes()[stats.node], roof), roof.threads);
  }
  if (const auto peak = roof.vendor.flops_per_second; peak && report.flops_per_second() > *peak) {
    report.notes.push_back(fmt::format(
        "the run reached {:.1f} GFLOP/s, above the vendor's peak as given: check --peak-tflops",
        report.flops_per_second() / 1e9));
    report.roof.vendor.flops_per_second = report.flops_per_second();
  }
  report.operators =
      grouped(report.nodes, [&](NodeId n) { return std::string(name_of(*graph.nodes()[n].op)); });
  std::ranges::stable_sort(report.operators, std::greater{},
                           [](const NamedTime& row) { return row.timed.above_floor(); });
  report.parts = grouped(report.nodes,
                         [&](NodeId n) { return std::string(part_of(graph, graph.nodes()[n])); });
  std::ranges::stable_sort(report.parts, std::greater{},
                           [](const NamedTime& row) { return row.timed.seconds; });
  report.memory = memory_use(recording, alternatives);
  report.findings = find_improvements(recording, report, alternatives);
  return report;
}

}  // namespace ridge
