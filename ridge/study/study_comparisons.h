#pragma once

// Which of the variants that do the same work is faster, and how sure that is.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/study/study_result.h"

namespace ridge {

// What an interval rests on, the best first.
enum class ComparisonBasis : std::uint8_t {
  rounds,  // of a study, in pairs: what disturbed a round disturbed both
  runs,    // of both, which took no turns
  steps,   // of one run each: how far runs differ from each other is not in it
};

struct StudyComparison {
  std::size_t before = 0, after = 0;  // variants
  Ratio time;                         // of a step: how many times `before`'s `after` takes
  ComparisonBasis basis = ComparisonBasis::runs;
  std::size_t count_before = 0, count_after = 0;  // of rounds, runs or steps
  std::optional<double> memory;                   // how many times `before`'s peak

  // Whether the interval leaves out 1.
  bool is_clear() const {
    return time.interval && (time.interval->high < 1 || time.interval->low > 1);
  }
};

// What is known of a variant beside its result, from the record of one of its runs.
struct VariantWork {
  std::string work;           // equal for variants whose steps do the same work
  std::vector<double> steps;  // seconds of a run's steps, without those that warm up
};

// Each measured variant against the first of those of equal work, in the order of variants.
// Intervals are at least 95 %: by signed ranks over rounds in pairs, where there are six; else by
// rank sums over the runs of both (study/rank_sum.h), the newest 40 of each; and by bootstrap over
// the steps where neither gives one.
std::vector<StudyComparison> comparisons_of(const StudyResult& result,
                                            std::span<const VariantWork> works);

// The runs of the rounds that both variants have, in pairs: what disturbed one disturbed the other.
std::vector<std::pair<const RunRow*, const RunRow*>> paired_runs(const MeasuredVariant& before,
                                                                 const MeasuredVariant& after);

// "6 rounds in pairs", "5 and 4 runs", "the steps of one run each"
std::string basis_text(const StudyComparison& comparison);

}  // namespace ridge
