#include "ridge/study/gate_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "ridge/base/text_table.h"
#include "ridge/study/run_series.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

bool more_is_better(std::string_view metric) {
  const RunColumn* column = find_run_column(metric);
  return column != nullptr && column->name.ends_with("_per_second");
}

std::vector<HistoryChange> changes_of(Store& store, std::span<const SeriesPoint> points,
                                      const HistoryRules& rules) {
  std::vector<double> values;
  for (const SeriesPoint& point : points) values.push_back(point.value);
  std::vector<HistoryChange> changes;
  for (const ChangePoint& found : change_points(values, {.min_magnitude = rules.least_effect})) {
    const SeriesPoint &before = points[found.index - 1], &after = points[found.index];
    const double change = found.mean_after / found.mean_before - 1;
    changes.push_back({.run = after.run,
                       .created = after.created,
                       .commit_before = store.commit(before.program),
                       .commit_after = store.commit(after.program),
                       .before = found.mean_before,
                       .after = found.mean_after,
                       .change = change,
                       .p_value = found.p_value,
                       .worse = more_is_better(rules.metric) ? change < 0 : change > 0});
  }
  return changes;
}

std::string commits(const HistoryChange& change) {
  const auto shown = [](const std::string& commit) {
    return commit.empty() ? std::string("?") : printable(short_commit(commit));
  };
  return shown(change.commit_before) + " to " + shown(change.commit_after);
}

}  // namespace

std::vector<HistoryGroup> history_of(Store& store, const HistoryRules& rules) {
  const std::vector<SeriesPoint> all = store.series(rules.filter, rules.metric);
  std::vector<HistoryGroup> groups;
  for (const RunSeries& series : series_of(all, Configurations().numbers(store))) {
    if (series.points.size() < fewest_history_runs) continue;
    std::vector<SeriesPoint> points;
    for (const std::uint32_t place : series.points) points.push_back(all[place]);
    groups.push_back({.newest = store.find(std::to_string(points.back().run)),
                      .runs = points.size(),
                      .changes = changes_of(store, points, rules)});
  }
  std::ranges::stable_sort(groups, [](const HistoryGroup& a, const HistoryGroup& b) {
    return std::pair(!a.is_regression(), -a.newest.created) <
           std::pair(!b.is_regression(), -b.newest.created);
  });
  return groups;
}

std::string history_text(const std::vector<HistoryGroup>& groups, const HistoryRules& rules) {
  if (groups.empty())
    return fmt::format("No group of {} or more runs with the same options on the same machine\n",
                       fewest_history_runs);
  const std::vector<TextColumn> columns{{"Workload", true, 40},
                                        {"Hardware", true, 30},
                                        {"Runs"},
                                        {"From (UTC)", true},
                                        {"Commits", true},
                                        {"Before"},
                                        {"After"},
                                        {"Change"},
                                        {"p"},
                                        {"Verdict", true}};
  std::vector<TextRow> rows;
  for (const HistoryGroup& group : groups) {
    const RunRow& run = group.newest;
    const std::string workload =
        printable(fmt::format("{} {} {} {}", run.workload, run.mode, run.version, run.dtype));
    TextRow row{workload, printable(hardware_of(run)), std::to_string(group.runs)};
    if (group.changes.empty()) {
      row.resize(columns.size());
      row.back() = "no change";
      rows.push_back(row);
    }
    for (const HistoryChange& change : group.changes) {
      const bool newest = &change == &group.changes.back();
      TextRow full = row;
      full.insert(
          full.end(),
          {utc_text(change.created), commits(change), fmt::format("{:.6g}", change.before),
           fmt::format("{:.6g}", change.after), fmt::format("{:+.1f} %", 100 * change.change),
           fmt::format("{:.1g}", change.p_value),
           !change.worse ? "better"
           : newest      ? "REGRESSION"
                         : "worse, since changed"});
      rows.push_back(full);
      row = {"", "", ""};
    }
  }
  return text_table(columns, rows) +
         fmt::format("Changes of {} by at least {:g} %, as means before and after\n", rules.metric,
                     100 * rules.least_effect);
}

std::string history_json(const std::vector<HistoryGroup>& groups, const HistoryRules& rules) {
  Json json{{"schema", "ridge-history-1"},
            {"metric", rules.metric},
            {"least_effect", rules.least_effect},
            {"outcome",
             std::ranges::any_of(groups, &HistoryGroup::is_regression) ? "regression" : "fine"},
            {"groups", Json::array()}};
  for (const HistoryGroup& group : groups) {
    const RunRow& run = group.newest;
    Json changes = Json::array();
    for (const HistoryChange& change : group.changes)
      changes.push_back({{"run", change.run},
                         {"created", utc_text(change.created)},
                         {"commit_before", change.commit_before},
                         {"commit_after", change.commit_after},
                         {"before", change.before},
                         {"after", change.after},
                         {"change", change.change},
                         {"p_value", change.p_value},
                         {"worse", change.worse}});
    json["groups"].push_back({{"workload", run.workload},
                              {"mode", run.mode},
                              {"version", run.version},
                              {"dtype", run.dtype},
                              {"hardware", hardware_of(run)},
                              {"machine", run.machine},
                              {"newest_run", run.id},
                              {"runs", group.runs},
                              {"regression", group.is_regression()},
                              {"changes", changes}});
  }
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace ridge
