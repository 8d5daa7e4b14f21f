#include "ridge/study/recorded_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridge/base/file.h"
#include "ridge/base/statistics.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/session/options.h"
#include "ridge/study/filter.h"
#include "ridge/study/rank_sum.h"
#include "ridge/study/run_exchange.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t max_baseline_bytes = std::size_t{256} << 20;
constexpr std::size_t candidate_runs = 7;
constexpr std::size_t fewest_commit_digits = 4;
constexpr std::size_t commit_digits = 10;   // as lists show them
constexpr std::int64_t most_recorded = 50;  // the newest

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// What is not known of a record without its context is not known of the other then.
std::string machine_of(const RunDocument& run, bool with_context) {
  return row_of(with_context ? run : RunDocument{.record = run.record}).row.machine;
}

std::string first_difference(const std::string& recorded, const std::string& now) {
  const Json before = Json::parse(recorded), after = Json::parse(now);
  for (const auto& [name, value] : after.items())
    if (!before.contains(name) || before[name] != value)
      return fmt::format("{} is {} there and {} here", name,
                         before.contains(name) ? before[name].dump() : "not given", value.dump());
  return "it has options that are not known here";
}

MetricResult compare_times(const GateCriterion& criterion, const RecordedRules& rules,
                           std::span<const GatedRun> recorded, std::span<const GatedRun> runs) {
  MetricResult result = result_of(criterion);
  if (criterion.metric->name != "time") {
    result.note = "a baseline without a program has step times alone";
    return result;
  }
  const auto medians = [](std::span<const GatedRun> of) {
    std::vector<double> logarithms;
    for (const GatedRun& run : of)
      if (run.row.median_seconds) logarithms.push_back(std::log(*run.row.median_seconds));
    return logarithms;
  };
  const std::vector<double> before = medians(recorded), after = medians(runs);
  result.pairs = std::min(before.size(), after.size());
  if (result.pairs == 0) {
    result.note = "no step times are known of both";
    return result;
  }
  result.baseline = std::exp(percentile(before, 0.5));
  result.candidate = std::exp(percentile(after, 0.5));
  const Center shift = shift_between(before, after, rules.false_alarms / 2);
  result.change = std::expm1(shift.value);
  if (result.pairs < runs_for_time || !shift.interval) {
    result.note = fmt::format("{} recorded runs against {} now; it takes {} of each", before.size(),
                              after.size(), runs_for_time);
    return result;
  }
  result.interval = Interval{std::expm1(shift.interval->low), std::expm1(shift.interval->high)};
  const double limit = criterion.least_effect.value;
  result.verdict = result.interval->low >= limit   ? GateVerdict::regression
                   : result.interval->high < limit ? GateVerdict::fine
                                                   : GateVerdict::undecided;
  return result;
}

}  // namespace

std::vector<RunDocument> runs_named(Store& store, std::string_view name) {
  std::vector<std::string> filters{"tag=" + filter_value(name)};
  const std::vector<std::string> commits = store.commits();
  if (name.size() >= fewest_commit_digits && is_hexadecimal(name))
    for (const std::string& commit : commits)
      if (commit.starts_with(name)) filters.push_back("commit=" + filter_value(commit));
  std::vector<RunDocument> found;
  for (const std::string& filter : filters) {
    for (const RunRow& row : store.list({.filter = filter, .limit = most_recorded}).runs)
      found.push_back(store.document(row.id));
    if (filter == filters.front() && !found.empty()) return found;  // a tag comes before a commit
  }
  if (!found.empty()) return found;
  std::vector<std::string> names = store.tags();
  for (const std::string& commit : commits) names.push_back(commit.substr(0, commit_digits));
  const std::string near = nearest_name(std::string(name), names);
  throw UsageError(
      "there is no baseline {}: no program or file of that name, and in {} no tag or commit{}",
      printable(name), store.file().string(),
      near.empty() ? "" : "; did you mean " + printable(near) + "?");
}

std::vector<RunDocument> runs_in_file(const std::filesystem::path& file) {
  const std::string text = read_text_file(file, max_baseline_bytes);
  std::vector<RunDocument> runs;
  try {
    const Json whole = Json::parse(text, nullptr, false);
    const bool is_record = whole.is_object() && whole.value("schema", Json()) != "ridge-run-1";
    if (is_record) {
      runs.push_back({.record = text});
    } else {
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        if (line.find_first_not_of(" \t\r") != std::string::npos)
          runs.push_back(run_from_line(line));
    }
    for (const RunDocument& run : runs) row_of(run);
  } catch (const FormatError& error) {
    throw FormatError(
        "{} is neither a program nor runs: it is no record of a run and no file of ridge runs "
        "export: {}",
        file.string(), error.what());
  }
  if (runs.empty()) throw FormatError("{} has no runs", file.string());
  return runs;
}

std::vector<GatedRun> comparable_runs(std::span<const RunDocument> recorded, const RunDocument& run,
                                      bool other_machines) {
  const GatedRun now = gated_run(run);
  std::vector<GatedRun> same;
  std::size_t elsewhere = 0;
  std::string options;  // of a run with others
  for (const RunDocument& document : recorded) {
    if (std::ssize(same) == most_recorded) break;
    const GatedRun before = gated_run(document);
    const bool has_context = document.context != "{}" && run.context != "{}";
    if (before.options != now.options)
      options = before.options;
    else if (other_machines || machine_of(document, has_context) == machine_of(run, has_context))
      same.push_back(before);
    else
      ++elsewhere;
  }
  if (!same.empty()) return same;
  if (elsewhere > 0)
    throw UsageError(
        "the baseline was recorded on another machine, or with other cores, drivers or libraries: "
        "--other-machines compares all the same");
  throw UsageError("no run of the baseline has the options of this command: {}",
                   first_difference(options, now.options));
}

CommandResult compare_with_records(const RecordedRules& rules,
                                   std::span<const RunDocument> recorded,
                                   const std::function<RunDocument()>& run,
                                   const std::function<double()>& now) {
  const double begin = now();
  const bool timed = std::ranges::any_of(rules.criteria, &GateCriterion::is_timed);
  const RunDocument first = run();
  const std::vector<GatedRun> baseline = comparable_runs(recorded, first, rules.other_machines);
  std::vector<GatedRun> candidate{gated_run(first)};
  double longest = now() - begin;
  while (timed && baseline.size() >= runs_for_time && candidate.size() < candidate_runs &&
         now() - begin + longest <= rules.budget) {
    const double before = now();
    candidate.push_back(gated_run(run()));
    longest = std::max(longest, now() - before);
  }
  CommandResult result{.command = {}, .metrics = {}, .notes = {}, .fault = {}};
  result.notes.push_back(
      fmt::format("{}, {} now", counted(std::ssize(baseline), "recorded run"), candidate.size()));
  for (const GateCriterion& criterion : rules.criteria)
    result.metrics.push_back(criterion.is_timed()
                                 ? compare_times(criterion, rules, baseline, candidate)
                                 : compare_counted(criterion, baseline, candidate));
  result.seconds = now() - begin;
  return result;
}

}  // namespace ridge
