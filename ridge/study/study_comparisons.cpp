#include "ridge/study/study_comparisons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/study/rank_sum.h"
#include "ridge/study/signed_rank.h"

namespace ridge {
namespace {

constexpr double beyond = 0.025;        // that an interval leaves out on each side
constexpr std::size_t most_runs = 40;   // of each: exact rank sums take the square of the product
constexpr std::size_t least_steps = 6;  // of a run, for an interval by its steps

std::vector<double> logarithms(const MeasuredVariant& variant) {
  std::vector<double> values;
  for (const RunRow& run : variant.runs) values.push_back(std::log(*run.median_seconds));
  if (values.size() > most_runs)
    values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(most_runs));
  return values;
}

// Logarithms of how many times as long `after` takes.
std::vector<double> paired_differences(const MeasuredVariant& before,
                                       const MeasuredVariant& after) {
  std::vector<double> differences;
  for (const auto& [first, second] : paired_runs(before, after))
    differences.push_back(std::log(*second->median_seconds / *first->median_seconds));
  return differences;
}

Ratio ratio_of(const Center& logarithm) {
  Ratio ratio;
  ratio.value = std::exp(logarithm.value);
  if (logarithm.interval)
    ratio.interval =
        Interval{std::exp(logarithm.interval->low), std::exp(logarithm.interval->high)};
  return ratio;
}

void compare_times(StudyComparison& comparison, const StudyResult& result,
                   std::span<const VariantWork> works) {
  const MeasuredVariant &before = result.variants[comparison.before],
                        &after = result.variants[comparison.after];
  if (!result.gathered) {
    const std::vector<double> differences = paired_differences(before, after);
    comparison.time = ratio_of(center_of(differences, beyond));
    comparison.basis = ComparisonBasis::rounds;
    comparison.count_before = comparison.count_after = differences.size();
    if (comparison.time.interval) return;
  }
  const std::vector<double> a = logarithms(before), b = logarithms(after);
  comparison.time = ratio_of(shift_between(a, b, beyond));
  comparison.basis = ComparisonBasis::runs;
  comparison.count_before = a.size();
  comparison.count_after = b.size();
  const std::vector<double>&first = works[comparison.before].steps,
        &second = works[comparison.after].steps;
  const bool is_one_each = a.size() == 1 && b.size() == 1;
  if (comparison.time.interval || !is_one_each || first.size() < least_steps ||
      second.size() < least_steps)
    return;
  comparison.time = ratio_of_medians(second, first);
  comparison.basis = ComparisonBasis::steps;
  comparison.count_before = first.size();
  comparison.count_after = second.size();
}

}  // namespace

std::vector<StudyComparison> comparisons_of(const StudyResult& result,
                                            std::span<const VariantWork> works) {
  std::vector<StudyComparison> comparisons;
  for (std::size_t v = 0; v < result.variants.size(); ++v) {
    if (!result.variants[v].seconds) continue;
    std::size_t first = 0;
    while (!result.variants[first].seconds || works[first].work != works[v].work) ++first;
    if (first == v) continue;
    StudyComparison& comparison = comparisons.emplace_back();
    comparison.before = first;
    comparison.after = v;
    compare_times(comparison, result, works);
    const auto &peak = result.variants[first].peak_bytes, &other = result.variants[v].peak_bytes;
    if (peak && other && *peak > 0)
      comparison.memory = static_cast<double>(*other) / static_cast<double>(*peak);
  }
  return comparisons;
}

std::vector<std::pair<const RunRow*, const RunRow*>> paired_runs(const MeasuredVariant& before,
                                                                 const MeasuredVariant& after) {
  std::vector<std::pair<const RunRow*, const RunRow*>> pairs;
  for (std::size_t a = 0; a < after.runs.size(); ++a) {
    const auto found = std::ranges::find(before.rounds, after.rounds[a]);
    if (found != before.rounds.end())
      pairs.emplace_back(&before.runs[static_cast<std::size_t>(found - before.rounds.begin())],
                         &after.runs[a]);
  }
  return pairs;
}

std::string basis_text(const StudyComparison& comparison) {
  switch (comparison.basis) {
    case ComparisonBasis::rounds:
      return fmt::format("{} rounds in pairs", comparison.count_after);
    case ComparisonBasis::runs:
      if (comparison.count_before == 1 && comparison.count_after == 1) return "one run of each";
      return fmt::format("{} and {} runs", comparison.count_before, comparison.count_after);
    case ComparisonBasis::steps:
      break;
  }
  return fmt::format("the {} and {} steps of one run each", comparison.count_before,
                     comparison.count_after);
}

}  // namespace ridge
