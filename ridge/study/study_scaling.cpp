#include "ridge/study/study_scaling.h"

#include <fmt/format.h>

#include <optional>

#include "ridge/base/units.h"
#include "ridge/study/study_comparisons.h"

namespace ridge {
namespace {

// Returns the options without those that say how many ranks share the work. For weak scaling the
// batch is that of one rank, and micro-batches, which may follow from the batch, do not count.
RunOptions shared_by_none(RunOptions options, bool is_weak) {
  if (is_weak) options.batch_size /= options.ranks, options.micro_batches = 1;
  options.ranks = 1;
  options.gpus = 0;
  options.ranks_per_gpu = 1;
  return options;
}

double rate_of(const RunRow& run, std::int64_t samples) {
  return static_cast<double>(samples) / *run.median_seconds;
}

// Samples a second of the rounds that both have.
void compare_rates(const StudyResult& result, ScalingPoint& point) {
  const MeasuredVariant &alone = result.variants[point.alone],
                        &together = result.variants[point.together];
  const std::int64_t samples_alone = result.plans[point.alone].samples_per_step,
                     samples = result.plans[point.together].samples_per_step;
  std::vector<double> rates, ideal;
  for (const auto& [one, several] : paired_runs(alone, together)) {
    rates.push_back(rate_of(*several, samples));
    ideal.push_back(rate_of(*one, samples_alone) * static_cast<double>(point.ranks));
  }
  point.samples_per_second = *together.samples_per_second;
  point.samples_per_second_alone = *alone.samples_per_second;
  if (result.gathered || rates.empty())  // which took no turns
    point.efficiency.value = point.samples_per_second / static_cast<double>(point.ranks) /
                             point.samples_per_second_alone;
  else
    point.efficiency = paired_ratio(rates, ideal);
}

std::optional<std::size_t> alone_for(const StudyResult& result, std::size_t together,
                                     bool is_weak) {
  const std::vector<StudyVariant>& variants = result.definition.variants;
  const RunOptions wanted = shared_by_none(variants[together].options, is_weak);
  for (std::size_t v = 0; v < variants.size(); ++v)
    if (variants[v].options.ranks == 1 && result.variants[v].samples_per_second &&
        shared_by_none(variants[v].options, is_weak) == wanted)
      return v;
  return std::nullopt;
}

}  // namespace

std::string efficiency_text(const Ratio& efficiency) {
  std::string text = format_percent(efficiency.value);
  if (efficiency.interval)
    text += fmt::format(" ({:.1f} to {:.1f})", 100 * efficiency.interval->low,
                        100 * efficiency.interval->high);
  return text;
}

std::vector<ScalingPoint> scaling_of(const StudyResult& result) {
  std::vector<ScalingPoint> points;
  for (const bool is_weak : {true, false})
    for (std::size_t v = 0; v < result.variants.size(); ++v) {
      const RunOptions& options = result.definition.variants[v].options;
      if (options.ranks == 1 || !result.variants[v].samples_per_second) continue;
      const auto alone = alone_for(result, v, is_weak);
      if (!alone) continue;
      ScalingPoint point{.alone = *alone,
                         .together = v,
                         .ranks = options.ranks,
                         .is_weak = is_weak,
                         .batch_of_rank = options.batch_size / options.ranks,
                         .batch = options.batch_size};
      compare_rates(result, point);
      points.push_back(point);
    }
  return points;
}

}  // namespace ridge
