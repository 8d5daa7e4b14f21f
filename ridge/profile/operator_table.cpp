#include "ridge/profile/operator_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/module_tree.h"
#include "ridge/session/json.h"

namespace ridge {
namespace {

constexpr std::string_view group_names[] = {"operator", "shape", "module", "phase"};
constexpr std::string_view sort_names[] = {"total", "self",   "share", "calls", "average",
                                           "flops", "gflops", "bytes", "gbps",  "name"};
constexpr std::string_view between_operators = "(between operators)";
constexpr std::string_view outside_phases = "(outside phases)";

template <class Enum>
Enum named(std::string_view what, std::span<const std::string_view> names, std::string_view name) {
  const auto it = std::ranges::find(names, name);
  if (it == names.end())
    throw UsageError("{} cannot be {}; it is one of {}", what, name, fmt::join(names, ", "));
  return static_cast<Enum>(it - names.begin());
}

std::string shape_name(const Graph& graph, const Node& node) {
  std::string name = fmt::format("{} ", name_of(*node.op));
  const std::vector<TensorType> types = graph.types_of(node.inputs);
  for (std::size_t i = 0; i < types.size(); ++i)
    name += fmt::format("{}{}", i > 0 ? ", " : "", types[i].to_string());
  return name;
}

Work work_of(const NodeStats& stats) {
  Work work{.calls = stats.calls, .ns = stats.total_ns, .cost = {}};
  work.cost = {.flops = stats.calls * stats.cost.flops,
               .causal_flops = stats.calls * stats.cost.causal_flops,
               .bytes_read = stats.calls * stats.cost.bytes_read,
               .bytes_written = stats.calls * stats.cost.bytes_written};
  return work;
}

std::vector<OperatorRow> rows_by_module(const Graph& graph, std::span<const NodeStats> nodes) {
  const ModuleTree tree = module_tree(graph);
  std::vector<Work> self(tree.modules.size());
  for (const NodeStats& stats : nodes)
    self[tree.of_scope[graph.nodes()[stats.node].scope]] += work_of(stats);
  std::vector<Work> total = self;
  add_submodules(tree, total);
  std::vector<OperatorRow> rows;
  for (std::size_t m = 0; m < self.size(); ++m)
    if (total[m].calls > 0)
      rows.push_back({m == 0 ? "(model)" : tree.modules[m].path, self[m], total[m]});
  return rows;
}

std::vector<OperatorRow> rows_by_key(const Graph& graph, std::span<const NodeStats> nodes,
                                     GroupBy group_by) {
  std::map<std::string, Work> groups;
  for (const NodeStats& stats : nodes) {
    const Node& node = graph.nodes()[stats.node];
    groups[group_by == GroupBy::op      ? std::string(name_of(*node.op))
           : group_by == GroupBy::shape ? shape_name(graph, node)
                                        : std::string(name_of(node.phase))] += work_of(stats);
  }
  std::vector<OperatorRow> rows;
  for (const auto& [name, work] : groups) rows.push_back({name, work, work});
  return rows;
}

double sort_key(const OperatorRow& row, SortBy by) {
  switch (by) {
    case SortBy::self:
      return static_cast<double>(row.self.ns);
    case SortBy::calls:
      return static_cast<double>(row.total.calls);
    case SortBy::average:
      return row.total.average_ns();
    case SortBy::flops:
      return static_cast<double>(row.total.cost.flops);
    case SortBy::flop_rate:
      return row.total.flops_per_second();
    case SortBy::bytes:
      return static_cast<double>(row.total.cost.bytes());
    case SortBy::bandwidth:
      return row.total.bytes_per_second();
    case SortBy::name:
      return 0;
    case SortBy::total:
    case SortBy::share:
      break;
  }
  return static_cast<double>(row.total.ns);
}

}  // namespace

GroupBy group_by_named(std::string_view name) {
  return named<GroupBy>("the grouping", group_names, name);
}
SortBy sort_by_named(std::string_view name) { return named<SortBy>("the order", sort_names, name); }
std::string_view name_of(GroupBy group_by) { return group_names[static_cast<int>(group_by)]; }
std::string_view name_of(SortBy sort_by) { return sort_names[static_cast<int>(sort_by)]; }

Work& Work::operator+=(const Work& other) {
  calls += other.calls;
  ns += other.ns;
  cost += other.cost;
  return *this;
}

double Work::average_ns() const {
  return over(static_cast<double>(ns), static_cast<double>(calls));
}
double Work::flops_per_second() const {
  return over(static_cast<double>(cost.flops), static_cast<double>(ns) * 1e-9);
}
double Work::bytes_per_second() const {
  return over(static_cast<double>(cost.bytes()), static_cast<double>(ns) * 1e-9);
}

double OperatorTable::share(std::int64_t ns) const {
  return over(static_cast<double>(ns), static_cast<double>(time.total_ns));
}

OperatorTable operator_table(const Recording& recording, GroupBy group_by, SortBy sort_by) {
  const Graph& graph = *recording.graph;
  const std::vector<NodeStats> nodes = node_stats(recording);
  OperatorTable table{.group_by = group_by, .sort_by = sort_by};
  table.rows = group_by == GroupBy::module ? rows_by_module(graph, nodes)
                                           : rows_by_key(graph, nodes, group_by);
  std::ranges::stable_sort(table.rows, {}, &OperatorRow::name);
  std::ranges::stable_sort(table.rows, std::greater{},
                           [&](const OperatorRow& row) { return sort_key(row, sort_by); });
  for (const NodeStats& stats : nodes) table.all += work_of(stats);
  table.time = step_time(recording);
  if (!recording.steps.empty()) {
    table.first_step = recording.steps.front().step;
    table.last_step = recording.steps.back().step;
  }
  table.device = recording.device;
  table.hardware = recording.hardware;
  table.threads = recording.threads;
  table.dropped = recording.dropped;
  return table;
}

nlohmann::ordered_json json_of(const OperatorTable& table) {
  using Json = nlohmann::ordered_json;
  const auto work = [&](const Work& w) {
    return Json{{"calls", w.calls},
                {"time_ns", w.ns},
                {"share", table.share(w.ns)},
                {"average_ns", w.average_ns()},
                {"flops", w.cost.flops},
                {"flops_per_second", w.flops_per_second()},
                {"bytes_read", w.cost.bytes_read},
                {"bytes_written", w.cost.bytes_written},
                {"bytes_per_second", w.bytes_per_second()}};
  };
  Json rows = Json::array();
  for (const OperatorRow& row : table.rows)
    rows.push_back({{"name", row.name}, {"self", work(row.self)}, {"total", work(row.total)}});
  return Json{{"group_by", name_of(table.group_by)},
              {"sort_by", name_of(table.sort_by)},
              {"device", table.device},
              {"hardware", table.hardware},
              {"threads", table.threads},
              {"steps", table.time.steps},
              {"first_step", table.first_step},
              {"last_step", table.last_step},
              {"dropped_records", table.dropped},
              {"step_time_ns", table.time.total_ns},
              {"operators_ns", table.time.nodes_ns},
              {"between_operators_ns", table.time.between_nodes_ns},
              {"outside_phases_ns", table.time.outside_phases_ns},
              {"all", work(table.all)},
              {"rows", rows}};
}

std::string operator_table_json(const OperatorTable& table) { return text_of(json_of(table)); }

std::string operators_csv(const OperatorTable& table) {
  std::string csv =
      "\"Name\",\"Calls\",\"SelfDurationNs\",\"TotalDurationNs\",\"Share\",\"AverageNs\",\"Flops\","
      "\"GflopPerS\",\"BytesRead\",\"BytesWritten\",\"GBPerS\"\n";
  for (const OperatorRow& row : table.rows) {
    const Work& w = row.total;
    csv += fmt::format("{},{},{},{},{:.6f},{:.1f},{},{:.3f},{},{},{:.3f}\n", csv_quoted(row.name),
                       w.calls, row.self.ns, w.ns, table.share(w.ns), w.average_ns(), w.cost.flops,
                       w.flops_per_second() * 1e-9, w.cost.bytes_read, w.cost.bytes_written,
                       w.bytes_per_second() * 1e-9);
  }
  const auto gap = [&](std::string_view name, std::int64_t ns) {
    csv +=
        fmt::format("{},0,{},{},{:.6f},0,0,0,0,0,0\n", csv_quoted(name), ns, ns, table.share(ns));
  };
  gap(between_operators, table.time.between_nodes_ns);
  gap(outside_phases, table.time.outside_phases_ns);
  return csv;
}

std::string nodes_json(const Recording& recording) {
  using Json = nlohmann::ordered_json;
  const Graph& graph = *recording.graph;
  Json nodes = Json::array();
  for (const NodeStats& stats : node_stats(recording)) {
    const Node& node = graph.nodes()[stats.node];
    const Work work = work_of(stats);
    nodes.push_back({{"node", stats.node},
                     {"name", display_name(graph, node.outputs.front())},
                     {"operator", name_of(*node.op)},
                     {"shape", shape_name(graph, node)},
                     {"module", graph.scope_name(node.scope)},
                     {"phase", name_of(node.phase)},
                     {"calls", work.calls},
                     {"time_ns", work.ns},
                     {"min_ns", stats.min_ns},
                     {"max_ns", stats.max_ns},
                     {"flops", work.cost.flops},
                     {"bytes_read", work.cost.bytes_read},
                     {"bytes_written", work.cost.bytes_written}});
  }
  const Json json{
      {"steps", recording.steps.size()}, {"dropped_records", recording.dropped}, {"nodes", nodes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
