#pragma once

// A baseline of which only records are there: runs in a store or a file.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/study/gate.h"
#include "ridge/study/store.h"

namespace ridge {

// The runs that have a tag, or whose commit begins so. UsageError with the nearest names if there
// are none.
std::vector<RunDocument> runs_named(Store& store, std::string_view name);

// The runs of a file: JSON lines of `ridge runs export`, or one record as a run writes it, such as
// performance_summary.json. FormatError for any other file.
std::vector<RunDocument> runs_in_file(const std::filesystem::path& file);

// Those of `recorded` that ran what `run` runs: with the same options on the same machine, unless
// any machine will do. UsageError, with what differs, if there are none.
std::vector<GatedRun> comparable_runs(std::span<const RunDocument> recorded, const RunDocument& run,
                                      bool other_machines);

struct RecordedRules {
  std::vector<GateCriterion> criteria;
  double budget = 120;          // seconds
  double false_alarms = 0.005;  // of the timed metric
  bool other_machines = false;
};

// Runs the candidate some times and compares it with recorded runs. Counts need one of each. Time
// needs `runs_for_time` recorded runs and as many of the candidate: the machine was in another
// state when the former were recorded, so that only what lies wholly beyond the least effect, with
// its interval, is a regression. `run` runs the candidate once; `now` tells seconds.
constexpr std::size_t runs_for_time = 5;
CommandResult compare_with_records(const RecordedRules& rules,
                                   std::span<const RunDocument> recorded,
                                   const std::function<RunDocument()>& run,
                                   const std::function<double()>& now);

}  // namespace ridge
