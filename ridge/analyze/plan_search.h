#pragma once

// What fits in an amount of memory, and what is enough: searches over plans, without a run.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/analyze/plan.h"

namespace ridge {

// A plan at one value of what is searched over.
struct PlannedSize {
  std::int64_t size = 0;
  StepPlan plan;
  double samples = 0;               // of a step
  std::optional<StepPlan> against;  // of the run that it is held against

  double samples_per_second() const;  // at the ceilings; 0 where they are not known
};

// A search over the sizes of a run, or over models of its proportions.
struct PlanSearch {
  std::string of;          // "batch-size", "seq-len", "model"
  std::size_t budget = 0;  // bytes
  SizeLimit limit;         // `size` is the largest value of the option; of models, its parameters

  // By doublings from the least on, and the largest. Of models, the largest and the next alone.
  std::vector<PlannedSize> sizes;
  // Of models: options of the largest, and of the next, which does not fit.
  std::optional<RunOptions> model, next_model;
  // Of a sample: the largest with a batch of 1, where that is not the batch of the run.
  std::optional<SizeLimit> alone;
};

// What may be searched over for a run: "batch-size", the sizes of a sample, "model".
std::vector<std::string> searchable(const RunOptions& options);

// `against` are options of a run that is planned beside each size, which alone differs between
// them. UsageError if `of` is not searchable, OutOfMemoryError if not even the least fits.
PlanSearch search_plans(const RunOptions& options, Device& device, std::string_view of,
                        std::size_t budget, const Roof* roof, const RunOptions* against = nullptr);

// Doubling a batch has to raise the samples per second by this part to be worth its memory.
inline constexpr double worthwhile_gain = 0.05;
// The least of the sizes from which on no doubling is worthwhile; none without ceilings, and if the
// largest doubling still is.
const PlannedSize* best_batch(const PlanSearch& search);

// A part of memory or time has to fall by this part to count as saved.
inline constexpr double worthwhile_saving = 0.10;
// The least of the sizes from which on `against` saves peak memory, or least time.
const PlannedSize* saves_memory_from(const PlanSearch& search);
const PlannedSize* saves_time_from(const PlanSearch& search);

// Bytes at the peak of a plan by what holds them: "parameters, gradients, optimizer" (what does not
// depend on the data), "attention" (what its layers computed), "other activations".
std::vector<std::pair<std::string_view, double>> peak_by_component(const StepPlan& plan);

// One run as it is and with other options: what they save and what they cost.
struct PlanDifference {
  std::string changes;  // "--recompute block"
  RunOptions options;   // with them
  StepPlan from, to;
  std::size_t budget = 0;
  // The largest batches in the budget; of size 0 if none fits.
  SizeLimit from_batch, to_batch;
};
// Each change is "NAME=VALUE", an option as a flag has it. UsageError for one that there is not.
RunOptions changed_options(const RunOptions& options, std::span<const std::string> changes);
PlanDifference plan_difference(const RunOptions& options, std::span<const std::string> changes,
                               Device& device, std::size_t budget, const Roof* roof);

}  // namespace ridge
