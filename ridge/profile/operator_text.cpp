// The operator table as text.

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/operator_table.h"

namespace ridge {
namespace {

constexpr std::size_t operator_width = 48;

std::string_view heading(SortBy by) {
  constexpr std::string_view names[] = {"Total Time",    "Self Time", "Share of the Step", "Calls",
                                        "Average",       "FLOPs",     "Achieved FLOP/s",   "Bytes",
                                        "Achieved GB/s", "Name"};
  return names[static_cast<int>(by)];
}

std::string_view first_column(GroupBy group_by) {
  constexpr std::string_view names[] = {"Operation", "Operation and shapes", "Module", "Phase"};
  return names[static_cast<int>(group_by)];
}

std::string milliseconds(std::int64_t ns) {
  return fmt::format("{:.3f} ms", static_cast<double>(ns) * 1e-6);
}
std::string microseconds(double ns) { return fmt::format("{:.1f} µs", ns * 1e-3); }

// A rate of 0 means that there is nothing to count: an operator that only moves data has no FLOPs.
std::string rate(double per_second) {
  return per_second > 0 ? fmt::format("{:.1f}", per_second * 1e-9) : "-";
}
std::string amount(std::int64_t count, double unit) {
  return count > 0 ? fmt::format("{:.2f}", static_cast<double>(count) / unit) : "-";
}

// ", 293 kernels of 19 kinds a step": of the operators alone is a row a kind of kernel.
std::string kernels(const OperatorTable& table) {
  if (table.group_by != GroupBy::op) return "";
  std::int64_t calls = 0;
  for (const OperatorRow& row : table.rows) calls += row.self.calls;
  return fmt::format(", {:.0f} kernels of {} kinds{}",
                     static_cast<double>(calls) / static_cast<double>(table.time.steps),
                     table.rows.size(), table.time.steps > 1 ? " in each" : "");
}

std::string title(const OperatorTable& table, std::size_t shown) {
  constexpr std::string_view things[] = {"Operations", "Operations with Shapes", "Modules",
                                         "Phases"};
  const std::string_view thing = things[static_cast<int>(table.group_by)];
  const bool all = shown == table.rows.size();
  std::string text =
      fmt::format("{} {} by {}:\n", all ? "All" : "Top", thing, heading(table.sort_by));
  const auto steps = static_cast<double>(table.time.steps);
  if (table.time.steps == 0) return text + "no complete step was recorded\n";
  const std::string which = table.time.steps == 1 ? fmt::format("Step {}", table.first_step)
                                                  : fmt::format("Steps {} to {} together",
                                                                table.first_step, table.last_step);
  text += fmt::format("{} on {}: {}", which, printable(table.device),
                      milliseconds(table.time.total_ns));
  if (table.time.steps > 1)
    text +=
        fmt::format(", {:.3f} ms a step", static_cast<double>(table.time.total_ns) * 1e-6 / steps);
  return text + kernels(table) + "\n";
}

}  // namespace

std::string operator_table_text(const OperatorTable& table, std::size_t top,
                                OperatorColumns columns_shown) {
  const bool work = columns_shown == OperatorColumns::all;
  const std::size_t shown = top == 0 ? table.rows.size() : std::min(top, table.rows.size());
  // Only of a module is self time another thing than total time.
  const bool nested = table.group_by == GroupBy::module;
  std::vector<TextColumn> columns{{std::string(first_column(table.group_by)), true, operator_width},
                                  {"Calls"}};
  if (nested) columns.push_back({"Self Time"});
  for (const char* header : {"Total Time", "Share", "Average"}) columns.push_back({header});
  if (work)
    for (const char* header : {"GFLOP", "GFLOP/s", "MB moved", "GB/s"}) columns.push_back({header});

  std::vector<TextRow> rows;
  const auto add = [&](std::string name, const Work& self, const Work& total) {
    TextRow& row = rows.emplace_back();
    row = {std::move(name), fmt::format("{}", total.calls)};
    if (nested) row.push_back(milliseconds(self.ns));
    for (std::string cell : {milliseconds(total.ns), format_percent(table.share(total.ns)),
                             microseconds(total.average_ns())})
      row.push_back(std::move(cell));
    if (!work) return;
    for (std::string cell : {amount(total.cost.flops, 1e9), rate(total.flops_per_second()),
                             amount(total.cost.bytes(), 1e6), rate(total.bytes_per_second())})
      row.push_back(std::move(cell));
  };
  const auto add_time = [&](std::string name, std::int64_t ns) {
    rows.push_back({std::move(name), ""});
    if (nested) rows.back().push_back(milliseconds(ns));
    rows.back().push_back(nested ? "" : milliseconds(ns));
    rows.back().push_back(format_percent(table.share(ns)));
  };

  for (std::size_t r = 0; r < shown; ++r)
    add(table.rows[r].name, table.rows[r].self, table.rows[r].total);
  rows.emplace_back();
  if (shown < table.rows.size()) {
    Work others;
    for (std::size_t r = shown; r < table.rows.size(); ++r) others += table.rows[r].self;
    const std::string name = fmt::format("({} other{})", table.rows.size() - shown,
                                         table.rows.size() - shown == 1 ? "" : "s");
    nested ? add_time(name, others.ns) : add(name, others, others);
  }
  add_time("(between operators)", table.time.between_nodes_ns);
  add_time("(outside phases)", table.time.outside_phases_ns);
  rows.emplace_back();
  add_time("Step time", table.time.total_ns);

  std::string text = title(table, shown) + text_table(columns, rows);
  if (nested)
    text += "Total times include submodules; self times and the gaps add up to the step time.\n";
  if (table.dropped > 0)
    text += fmt::format("Records that had no room: {}; every figure here is too small.\n",
                        format_count(static_cast<std::int64_t>(table.dropped)));
  return text;
}

std::string host_times_text(const Recording& host, OperatorColumns shown) {
  return host.replays.empty() ? operator_table_text(operator_table(host), 10, shown) : "";
}

}  // namespace ridge
