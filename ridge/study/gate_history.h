#pragma once

// The gate over a store's history: where a metric changed its level, and whether the newest change
// is for the worse.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/study/change_points.h"
#include "ridge/study/store.h"

namespace ridge {

struct HistoryChange {
  std::int64_t run = 0, created = 0;        // the first run after the change
  std::string commit_before, commit_after;  // of the runs on both sides
  double before = 0, after = 0;             // means
  double change = 0;                        // relative
  double p_value = 1;
  bool worse = false;  // in the metric's direction
};

// Runs with the same options on the same machine, the oldest first.
struct HistoryGroup {
  RunRow newest;
  std::size_t runs = 0;
  std::vector<HistoryChange> changes;
  // The newest change is for the worse.
  bool is_regression() const { return !changes.empty() && changes.back().worse; }
};

struct HistoryRules {
  std::string filter;
  std::string metric = "median_seconds";  // a column of runs
  double least_effect = 0.02;             // relative; smaller changes are not reported
};

// Groups with enough runs for a change to be found, those with regressions first. UsageError for a
// filter or a metric that there is not.
std::vector<HistoryGroup> history_of(Store& store, const HistoryRules& rules);
constexpr std::size_t fewest_history_runs = 4;

std::string history_text(const std::vector<HistoryGroup>& groups, const HistoryRules& rules);
std::string history_json(const std::vector<HistoryGroup>& groups, const HistoryRules& rules);

}  // namespace ridge
