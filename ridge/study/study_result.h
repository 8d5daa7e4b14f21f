#pragma once

// What a study has measured so far, read from its store.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/study/definition.h"
#include "ridge/study/store.h"
#include "ridge/study/variant_plan.h"

namespace ridge {

struct MeasuredVariant {
  std::vector<RunRow> runs;          // with a step time, by round
  std::vector<std::int64_t> rounds;  // of each of them
  std::string outcome;               // "measured", "2 of 3 rounds", or why there is nothing
  bool is_done = false;              // no turn is left
  // Over the rounds: the median of the medians of a step, in seconds; and the interval of that
  // median with 95 % where there are enough rounds for one, else the fastest and the slowest round.
  std::optional<double> seconds;
  std::optional<Interval> spread;
  std::optional<double> samples_per_second, tokens_per_second;  // medians over the rounds
  std::optional<std::int64_t> peak_bytes, kernels, flops;       // of the last run

  std::optional<double> flops_per_second() const;
};

// The interval of the median where there are enough values for one, else from the least to the
// largest; none of a single value.
std::optional<Interval> spread_of(std::span<const double> values);

struct StudyResult {
  std::string name;
  std::int64_t created = 0;
  StudyDefinition definition;
  std::vector<VariantPlan> plans;         // by variant
  std::vector<MeasuredVariant> variants;  // likewise

  // The runs were gathered afterwards (gathered_study.h): they took no turns, and of plans there is
  // what the runs themselves tell.
  bool gathered = false;

  std::int64_t measured = 0, left = 0;      // turns
  std::int64_t machines = 0, programs = 0;  // different ones that made the runs
  bool is_complete() const { return left == 0; }
  // The step's FLOPs at the device's peak over its time; none without ceilings or measurement.
  std::optional<double> utilization(std::size_t variant) const;
};

// Sets what is said over the runs of a variant.
void summarize(MeasuredVariant& variant);

// UsageError for a study that there is not.
StudyResult read_study(Store& store, std::string_view name);
StudyResult result_of(const StudyRow& study, const std::vector<StudyEntry>& entries);

}  // namespace ridge
