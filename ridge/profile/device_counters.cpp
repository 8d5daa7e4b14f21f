#include "ridge/profile/device_counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/device/counted_units.h"
#include "ridge/graph/op_rules.h"

namespace ridge {
namespace {

bool is_percentage(const DeviceMetric& metric) { return metric.unit == "%"; }

// The mean time of a node's runs in a step, in nanoseconds, by node.
std::vector<double> times_of_a_step(const Recording& recording) {
  std::vector<double> times(recording.graph->nodes().size());
  for (const Recording::NodeRun& run : recording.nodes)
    times[run.node] += static_cast<double>(run.time_ns());
  const auto steps = static_cast<double>(std::max<std::size_t>(recording.steps.size(), 1));
  for (double& time : times) time /= steps;
  return times;
}

}  // namespace

std::int64_t steps_to_count_in() {
  // Two passes were seen on sm90 by default; how many all units take is not known.
  return counts_all_units() ? 12 : 3;
}

std::unique_ptr<DeviceCounters> DeviceCounters::of(Executor& executor) {
  auto counters = executor.device().tools().range_counters(executor.graph().nodes().size());
  return counters ? std::make_unique<DeviceCounters>(std::move(counters)) : nullptr;
}

DeviceCounters::DeviceCounters(std::unique_ptr<RangeCounters> counters)
    : counters_(std::move(counters)) {}

void DeviceCounters::begin_step(Executor& executor) {
  if (done_) return;
  counted_.assign(executor.graph().nodes().size(), false);
  executor.device().synchronize();
  executor.observe(*this);
  counters_->start();
}

void DeviceCounters::end_step(Executor& executor) {
  if (done_) return;
  executor.device().synchronize();
  executor.forget(*this);
  done_ = counters_->stop();
}

void DeviceCounters::on_node_begin(const Graph&, NodeId node) {
  if (counted_[node]) return;
  counted_[node] = in_range_ = true;
  counters_->enter(node);
}

void DeviceCounters::on_node(const Graph&, NodeId, Clock::time_point, Clock::time_point) {
  if (std::exchange(in_range_, false)) counters_->leave();
}

DeviceCounterReport report_device_counters(const Recording& recording,
                                           std::span<const DeviceMetric> metrics,
                                           std::span<const RangeCounters::Range> ranges,
                                           std::size_t passes) {
  const Graph& graph = *recording.graph;
  const std::vector<double> times = times_of_a_step(recording);
  std::map<std::pair<std::string_view, Phase>, DeviceCounterRow> rows;
  for (const RangeCounters::Range& range : ranges) {
    if (range.id >= graph.nodes().size()) continue;
    const Node& node = graph.nodes()[range.id];
    DeviceCounterRow& row = rows[{name_of(*node.op), node.phase}];
    row.op = name_of(*node.op);
    row.phase = node.phase;
    row.values.resize(metrics.size());
    ++row.nodes;
    const double time = times[range.id];
    row.time_ns += time;
    row.expected_bytes += static_cast<double>(cost(graph, node).bytes());
    for (std::size_t m = 0; m < metrics.size(); ++m)
      row.values[m] += range.values[m] * (is_percentage(metrics[m]) ? time : 1);
  }
  DeviceCounterReport report{{metrics.begin(), metrics.end()}, passes, {}};
  for (auto& [key, row] : rows) {
    for (std::size_t m = 0; m < metrics.size(); ++m)
      if (is_percentage(metrics[m]))
        row.values[m] = row.time_ns > 0 ? row.values[m] / row.time_ns : 0;
    report.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(report.rows, std::greater{}, &DeviceCounterRow::time_ns);
  return report;
}

std::string device_counters_text(const DeviceCounterReport& report) {
  std::vector<TextColumn> columns{
      {"Operator", true}, {"Phase", true}, {"Nodes"}, {"Time"}, {"Bytes expected"}};
  for (const DeviceMetric& metric : report.metrics) columns.push_back({metric.name});
  std::vector<TextRow> rows;
  for (const DeviceCounterRow& row : report.rows) {
    TextRow cells{row.op, std::string(name_of(row.phase)), format_count(row.nodes),
                  format_duration(row.time_ns * 1e-9),
                  format_bytes(static_cast<std::uint64_t>(row.expected_bytes))};
    for (std::size_t m = 0; m < report.metrics.size(); ++m)
      cells.push_back(is_percentage(report.metrics[m])
                          ? fmt::format("{:.1f} %", row.values[m])
                          : format_bytes(static_cast<std::uint64_t>(row.values[m])));
    rows.push_back(std::move(cells));
  }
  return fmt::format(
             "Hardware counters of the GPU, over one step run {} time{}, each node alone:\n",
             report.passes, report.passes == 1 ? "" : "s") +
         text_table(columns, rows) +
         "Time is that of the recorded steps, without counting. Bytes expected are each operand's, "
         "moved once; less is read where they were still in the second cache.\n";
}

std::string device_counters_json(const DeviceCounterReport& report) {
  using Json = nlohmann::ordered_json;
  Json metrics = Json::array(), rows = Json::array();
  for (const DeviceMetric& metric : report.metrics)
    metrics.push_back({{"name", metric.name}, {"unit", metric.unit}, {"metric", metric.metric}});
  for (const DeviceCounterRow& row : report.rows) {
    Json json = {{"operator", row.op},
                 {"phase", name_of(row.phase)},
                 {"nodes", row.nodes},
                 {"time_ns", row.time_ns},
                 {"expected_bytes", row.expected_bytes}};
    for (std::size_t m = 0; m < report.metrics.size(); ++m)
      json[report.metrics[m].name] = row.values[m];
    rows.push_back(std::move(json));
  }
  const Json json = {{"device", "gpu"},
                     {"passes", report.passes},
                     {"metrics", std::move(metrics)},
                     {"operators", std::move(rows)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
