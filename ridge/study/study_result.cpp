#include "ridge/study/study_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ridge {
namespace {

std::optional<double> median_of(const std::vector<RunRow>& runs,
                                std::optional<double> RunRow::*field) {
  std::vector<double> values;
  for (const RunRow& run : runs)
    if (run.*field) values.push_back(*(run.*field));
  if (values.empty()) return std::nullopt;
  return statistics_of(values).median;
}

// Takes what became of a turn; returns what went wrong in it.
std::string take(MeasuredVariant& variant, const StudyEntry& entry) {
  if (!entry.run) return entry.fault;
  if (entry.run->median_seconds) {
    variant.runs.push_back(*entry.run);
    variant.rounds.push_back(entry.turn.round);
  }
  return entry.run->outcome == "completed" ? "" : entry.run->outcome;
}

}  // namespace

void summarize(MeasuredVariant& variant) {
  if (variant.runs.empty()) return;
  std::vector<double> seconds;
  for (const RunRow& run : variant.runs) seconds.push_back(*run.median_seconds);
  variant.seconds = statistics_of(seconds).median;
  variant.spread = spread_of(seconds);
  variant.samples_per_second = median_of(variant.runs, &RunRow::samples_per_second);
  variant.tokens_per_second = median_of(variant.runs, &RunRow::tokens_per_second);
  variant.peak_bytes = variant.runs.back().peak_bytes;
  variant.kernels = variant.runs.back().kernels;
  variant.flops = variant.runs.back().flops;
}

// sign_interval() wants no more than 6 values.
std::optional<Interval> spread_of(std::span<const double> values) {
  if (const auto interval = sign_interval(values)) return interval;
  if (values.size() < 2) return std::nullopt;
  const auto [low, high] = std::ranges::minmax(values);
  return Interval{low, high};
}

std::optional<double> MeasuredVariant::flops_per_second() const {
  if (!seconds || !flops) return std::nullopt;
  return static_cast<double>(*flops) / *seconds;
}

std::optional<double> StudyResult::utilization(std::size_t variant) const {
  const double peak = plans[variant].seconds_at_peak_rate;
  if (!variants[variant].seconds || peak <= 0) return std::nullopt;
  return peak / *variants[variant].seconds;
}

StudyResult result_of(const StudyRow& study, const std::vector<StudyEntry>& entries) {
  StudyResult result{.name = study.name,
                     .created = study.created,
                     .definition = study_from_json(study.definition),
                     .plans = {},
                     .variants = {}};
  const std::size_t count = result.definition.variants.size();
  const std::int64_t rounds = result.definition.rounds;
  result.plans = plans_from_json(study.plans, count);
  result.variants.resize(count);
  std::vector<std::int64_t> taken(count, 0);
  std::vector<std::string> faults(count);
  std::set<std::string> machines, programs;
  for (const StudyEntry& entry : entries) {
    const auto v = static_cast<std::size_t>(entry.turn.variant);
    if (v >= count || entry.turn.round > rounds) continue;
    if (entry.run) {
      ++taken[v];
      ++result.measured;
      machines.insert(entry.run->machine);
      programs.insert(entry.run->binary);
    }
    if (const std::string fault = take(result.variants[v], entry); !fault.empty())
      faults[v] =
          entry.turn.round == 0 ? fault : fmt::format("{} in round {}", fault, entry.turn.round);
    // A variant that failed once would fail again: it takes no further turn.
    result.variants[v].is_done |= !entry.run;
  }
  for (std::size_t v = 0; v < count; ++v) {
    MeasuredVariant& variant = result.variants[v];
    variant.is_done |= taken[v] == rounds;
    if (!variant.is_done) result.left += rounds - taken[v];
    summarize(variant);
    variant.outcome = taken[v] == rounds  ? "measured"
                      : taken[v] > 0      ? fmt::format("{} of {} rounds", taken[v], rounds)
                      : faults[v].empty() ? "not measured yet"
                                          : "";
    if (!faults[v].empty()) variant.outcome += (variant.outcome.empty() ? "" : "; ") + faults[v];
  }
  result.machines = std::ssize(machines);
  result.programs = std::ssize(programs);
  return result;
}

StudyResult read_study(Store& store, std::string_view name) {
  const StudyRow study = store.study(name);
  return result_of(study, store.study_entries(name));
}

}  // namespace ridge
