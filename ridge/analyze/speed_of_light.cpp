#include "ridge/analyze/speed_of_light.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "ridge/base/units.h"
#include "ridge/profile/device_report.h"
#include "ridge/profile/kernel_stats.h"

namespace ridge {
namespace {

constexpr double cache_line = 64;
constexpr double busy = 0.6;  // of a unit that holds back

// The meanings of metrics.
enum class Says : std::uint8_t {
  unit_percent,  // a unit's use
  level_bytes,   // a level's traffic
  level_lines,   // the same in cache lines
  fma_flops,     // FLOPs of vector units
  occupancy      // in percent
};
struct Meaning {
  std::string_view metric;
  Says says;
  std::string_view target;  // the unit or the level
};

// By CUPTI's names, which `ncu --query-metrics` lists.
constexpr std::array gpu_meanings = {
    Meaning{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", Says::unit_percent,
            "tensor"},
    Meaning{"sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", Says::unit_percent,
            "FMA"},
    Meaning{"sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", Says::unit_percent,
            "ALU"},
    Meaning{"sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active", Says::unit_percent,
            "LSU"},
    Meaning{"l1tex__throughput.avg.pct_of_peak_sustained_elapsed", Says::unit_percent, "L1"},
    Meaning{"lts__throughput.avg.pct_of_peak_sustained_elapsed", Says::unit_percent, "L2"},
    Meaning{"dram__throughput.avg.pct_of_peak_sustained_elapsed", Says::unit_percent, "memory"},
    Meaning{"l1tex__t_bytes.sum", Says::level_bytes, "L1"},
    Meaning{"lts__t_bytes.sum", Says::level_bytes, "L2"},
    Meaning{"dram__bytes_read.sum", Says::level_bytes, "memory"},
    Meaning{"dram__bytes_write.sum", Says::level_bytes, "memory"},
    Meaning{"sm__warps_active.avg.pct_of_peak_sustained_active", Says::occupancy, ""}};

// The processor chooses what perf_event's cache events count (arch/x86/events of Linux).
constexpr std::array intel_meanings = {Meaning{"flops", Says::fma_flops, "FMA"},
                                       Meaning{"cache references", Says::level_lines, "L3"},
                                       Meaning{"cache misses", Says::level_lines, "memory"}};
constexpr std::array amd_meanings = {Meaning{"flops", Says::fma_flops, "FMA"},
                                     Meaning{"cache references", Says::level_lines, "L2"},
                                     Meaning{"cache misses", Says::level_lines, "L3"}};

std::span<const Meaning> meanings_of(DeviceKind kind, std::string_view vendor) {
  if (kind == DeviceKind::gpu) return gpu_meanings;
  if (vendor == "GenuineIntel") return intel_meanings;
  if (vendor == "AuthenticAMD") return amd_meanings;
  return {};
}

// The pipe that computes a node's FLOPs.
std::string pipe_of(ProductKind precision, DeviceKind device) {
  if (precision == ProductKind::f32) return "FMA";
  return device == DeviceKind::gpu ? "tensor" : std::string(name_of(precision));
}

// Sums over nodes, from which a row is made.
struct Sums {
  double seconds = 0, flops = 0, bytes = 0, launch_bound = 0;
  std::map<std::string, double> pipe_seconds;  // at their peaks
  std::map<std::string, double> level_bytes;
  struct Counted {
    double amount = 0;   // busy seconds, bytes or FLOPs
    double seconds = 0;  // of the nodes that were counted
  };
  std::map<std::string, Counted> unit_busy, level_counted;
  Counted flops_counted, occupancy;
};

struct NodeValues {
  const std::vector<double>* values = nullptr;  // null: it was not counted
};

class Summing {
 public:
  Summing(const Recording& recording, const BottleneckReport& report, const CountedNodes& counted,
          std::string_view vendor)
      : recording_(recording), roof_(report.roof), values_(recording.graph->nodes().size()) {
    for (const RangeCounters::Range& range : counted.nodes)
      if (range.id < values_.size()) values_[range.id].values = &range.values;
    for (const DeviceMetric& metric : counted.metrics) {
      const auto meanings = meanings_of(roof_.kind, vendor);
      const auto found = std::ranges::find(meanings, metric.metric, &Meaning::metric);
      meanings_.push_back(found == meanings.end() ? std::nullopt : std::optional(*found));
    }
  }

  // A node, or the part of it that one of its kernels has by its time.
  void add(const NodeBottleneck& node, double part, Sums& sums) const {
    const Graph& graph = *recording_.graph;
    const Timed& timed = node.timed;
    sums.seconds += part * timed.seconds;
    sums.flops += part * static_cast<double>(timed.cost.causal_flops);
    const double bytes = part * static_cast<double>(timed.cost.bytes());
    sums.bytes += bytes;
    if (timed.bound() == Bound::overhead) sums.launch_bound += part * timed.seconds;
    if (timed.compute_floor > 0)
      sums.pipe_seconds[pipe_of(compute_precision(graph, graph.nodes()[node.node], roof_),
                                roof_.kind)] += part * timed.compute_floor;
    for (const Roof::Level& level : roof_.levels) {
      sums.level_bytes[level.name] += bytes;
      if (level.name == node.level) break;
    }
    add_counted(node, part, sums);
  }

  LightRow row_of(std::string name, const Sums& sums) const;

 private:
  void add_counted(const NodeBottleneck& node, double part, Sums& sums) const {
    const std::vector<double>* const values = values_[node.node].values;
    if (values == nullptr) return;
    const double seconds = part * node.timed.seconds, calls = part * node.timed.calls;
    for (std::size_t m = 0; m < meanings_.size() && m < values->size(); ++m) {
      if (!meanings_[m]) continue;
      const double value = (*values)[m];
      const std::string target(meanings_[m]->target);
      const auto add = [seconds](Sums::Counted& to, double amount, bool first = true) {
        to.amount += amount;
        if (first) to.seconds += seconds;
      };
      switch (meanings_[m]->says) {
        case Says::unit_percent:
          add(sums.unit_busy[target], value / 100 * seconds);
          break;
        case Says::level_bytes:  // read and written bytes of one level are two metrics
          add(sums.level_counted[target], value * calls,
              meanings_[m]->metric != "dram__bytes_write.sum");
          break;
        case Says::level_lines:
          add(sums.level_counted[target], value * cache_line * calls);
          break;
        case Says::fma_flops:
          add(sums.flops_counted, value * calls);
          break;
        case Says::occupancy:
          add(sums.occupancy, value / 100 * seconds);
          break;
      }
    }
  }

  const Recording& recording_;
  const Roof& roof_;
  std::vector<NodeValues> values_;
  std::vector<std::optional<Meaning>> meanings_;  // by metric; none: it says nothing of a unit
};

// A count of most of the time stands for all of it.
bool covers(const Sums::Counted& counted, double seconds) {
  return counted.seconds > 0 && counted.seconds >= 0.9 * seconds;
}

LightRow Summing::row_of(std::string name, const Sums& sums) const {
  LightRow row{
      .name = std::move(name), .seconds = sums.seconds, .flops = sums.flops, .bytes = sums.bytes};
  for (const auto& [pipe, seconds] : sums.pipe_seconds)
    row.units[pipe] = {over(seconds, sums.seconds), false};
  const bool only_fma = sums.pipe_seconds.empty() ||
                        (sums.pipe_seconds.size() == 1 && sums.pipe_seconds.contains("FMA"));
  if (only_fma && covers(sums.flops_counted, sums.seconds))
    row.units["FMA"] = {
        over(sums.flops_counted.amount / roof_.flops(ProductKind::f32), sums.flops_counted.seconds),
        true};
  for (const auto& [level, bytes] : sums.level_bytes) row.levels[level] = {bytes, false};
  for (const auto& [level, counted] : sums.level_counted)
    if (covers(counted, sums.seconds))
      row.levels[level] = {counted.amount * over(sums.seconds, counted.seconds), true};
  for (const Roof::Level& level : roof_.levels) {
    const LevelTraffic& traffic = row.levels[level.name];
    row.units[level.name] = {over(traffic.bytes / level.bytes_per_second, sums.seconds),
                             traffic.counted};
  }
  for (const auto& [unit, counted] : sums.unit_busy)
    if (covers(counted, sums.seconds))
      row.units[unit] = {over(counted.amount, counted.seconds), true};
  if (covers(sums.occupancy, sums.seconds))
    row.occupancy = over(sums.occupancy.amount, sums.occupancy.seconds);
  const std::string busiest = row.busiest();
  const bool launches = sums.launch_bound > 0.5 * sums.seconds;
  row.limit = launches                                                 ? "launches"
              : !busiest.empty() && row.units.at(busiest).part >= busy ? busiest
                                                                       : "latency";
  return row;
}

std::vector<LightRow> sorted(std::vector<LightRow> rows) {
  std::ranges::stable_sort(rows, std::greater{}, &LightRow::seconds);
  return rows;
}

// Families of kernels, each with its share of the nodes that it runs for.
std::vector<LightRow> rows_of_kernels(const Recording& recording, const BottleneckReport& report,
                                      const Summing& summing) {
  std::map<NodeId, const NodeBottleneck*> nodes;
  for (const NodeBottleneck& node : report.nodes) nodes[node.node] = &node;
  std::map<NodeId, double> ns_of_node;
  std::map<std::pair<std::string, NodeId>, double> ns_of_family;
  const KernelCalls kernels = kernel_calls(recording);
  std::vector<std::string> families;
  for (const std::string& name : kernels.names) families.push_back(truncated_kernel_name(name));
  for (const KernelCall& call : kernels.calls) {
    if (call.activity == nullptr || !nodes.contains(call.node)) continue;
    const auto taken = static_cast<double>(call.end_ns - call.begin_ns);
    ns_of_node[call.node] += taken;
    ns_of_family[{families[call.name], call.node}] += taken;
  }
  std::map<std::string, Sums> sums;
  for (const auto& [key, taken] : ns_of_family)
    summing.add(*nodes.at(key.second), over(taken, ns_of_node.at(key.second)), sums[key.first]);
  std::vector<LightRow> rows;
  for (const auto& [name, sum] : sums) rows.push_back(summing.row_of(name, sum));
  return sorted(std::move(rows));
}

std::vector<KernelFit> fits_of(const Recording& recording) {
  std::vector<KernelFit> fits;
  const std::optional<DeviceReport> device = device_report(recording);
  if (!device) return fits;
  const auto steps = static_cast<double>(std::max<std::size_t>(recording.steps.size(), 1));
  for (const DeviceReport::Kernel& kernel : device->kernels_by_time) {
    const Occupancy occupancy = occupancy_of(recording.processor, kernel.longest);
    fits.push_back({.name = kernel.name,
                    .op = kernel.op,
                    .calls = kernel.calls,
                    .seconds = static_cast<double>(kernel.total_ns) * nano / steps,
                    .launch = kernel.longest,
                    .occupancy = occupancy,
                    .why = explanation_of(occupancy, recording.processor, kernel.longest)});
  }
  return fits;
}

// Pipes in their order, then levels from the nearest on, of those that any row has.
std::vector<std::string> units_of(const SpeedOfLight& light) {
  std::vector<std::string> levels;
  for (const Roof::Level& level : light.roof.levels) levels.push_back(level.name);
  if (std::ranges::find(levels, "L1") == levels.end() && light.all.units.contains("L1"))
    levels.insert(levels.begin(), "L1");
  constexpr std::array first = {"tensor", "FMA", "ALU", "LSU"};
  std::vector<std::string> units;
  for (const char* pipe : first)
    if (light.all.units.contains(pipe)) units.emplace_back(pipe);
  for (const auto& [unit, use] : light.all.units)
    if (std::ranges::find(units, unit) == units.end() &&
        std::ranges::find(levels, unit) == levels.end())
      units.push_back(unit);
  units.insert(units.end(), levels.begin(), levels.end());
  return units;
}

}  // namespace

std::string LightRow::busiest() const {
  const auto found =
      std::ranges::max_element(units, {}, [](const auto& entry) { return entry.second.part; });
  return found == units.end() ? "" : found->first;
}

bool SpeedOfLight::counts() const {
  return std::ranges::any_of(all.units, [](const auto& entry) { return entry.second.counted; });
}

SpeedOfLight speed_of_light(const Recording& recording, const BottleneckReport& report,
                            const CountedNodes& counted, std::string_view vendor,
                            std::string fault) {
  const Summing summing(recording, report, counted, vendor);
  SpeedOfLight light{.roof = report.roof, .step_seconds = report.step_seconds};
  light.fault = std::move(fault);
  Sums all;
  std::map<std::string, Sums> by_operator;
  for (const NodeBottleneck& node : report.nodes) {
    summing.add(node, 1, all);
    summing.add(node, 1,
                by_operator[std::string(name_of(*recording.graph->nodes()[node.node].op))]);
  }
  light.all = summing.row_of("all", all);
  for (const auto& [name, sums] : by_operator)
    light.operators.push_back(summing.row_of(name, sums));
  light.operators = sorted(std::move(light.operators));
  light.kernels = rows_of_kernels(recording, report, summing);
  light.fits = fits_of(recording);
  light.units = units_of(light);
  return light;
}

SpeedOfLight speed_of_light(const StepRecorder& recorder, const BottleneckReport& report) {
  return speed_of_light(recorder.on_device(), report, counted_nodes(recorder), this_cpu().vendor,
                        recorder.counters_fault());
}

std::vector<RooflinePoint> points_by_level(const SpeedOfLight& light, std::size_t top) {
  std::vector<RooflinePoint> points;
  for (std::size_t i = 0; i < std::min(top, light.operators.size()); ++i) {
    const LightRow& row = light.operators[i];
    if (row.flops <= 0) continue;
    for (const auto& [level, traffic] : row.levels)
      if (traffic.bytes > 0)
        points.push_back({.name = row.name + ", " + level,
                          .calls = 1,
                          .seconds = row.seconds,
                          .flops = static_cast<std::int64_t>(row.flops),
                          .bytes = static_cast<std::int64_t>(traffic.bytes),
                          .share = light.share(row)});
  }
  return points;
}

}  // namespace ridge
