#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/session/options.h"
#include "ridge/session/trainer.h"

namespace ridge {

enum class Outcome : std::uint8_t { completed, interrupted, diverged, failed };
std::string_view name_of(Outcome outcome);

struct ValidationLoss {
  std::int64_t step = 0;  // steps done when it was taken
  double loss = 0;
};

// What a training run did, as it was observed.
struct RunRecord {
  std::vector<StepReport> steps;
  std::vector<ValidationLoss> validation;
  Outcome outcome = Outcome::completed;
  double seconds = 0;                     // from the first step to the end
  std::size_t peak_tensor_bytes = 0;      // most alive at once, evaluation included
  std::uint64_t tensor_allocations = 0;   // blocks the allocator handed out
  std::uint64_t peak_resident_bytes = 0;  // of the whole process; 0: not known
  std::optional<StepCost> cost;           // exact work of one step
};

// What is reported of it. Times are in seconds and, like the rates, leave out the first
// options.warmup_steps steps; if there are no others, they cover all of them.
struct PerformanceSummary {
  std::int64_t steps = 0;
  std::int64_t steps_left_out = 0;
  std::int64_t total_samples = 0;
  Statistics step, forward, backward, optimizer;
  double samples_per_second = 0;
  double tokens_per_second = 0;
  double flops_per_second = 0;  // 0 if the cost is not known
  double causal_flops_per_second = 0;
  double mean_live_bytes = 0;  // of tensors at the ends of all steps
};

// How many steps loss scaling has skipped.
std::int64_t skipped_steps(const RunRecord& record);

PerformanceSummary summarize(const TrainOptions& options, const RunRecord& record);

// Where a run took place.
struct SystemInfo {
  std::string host, os, cpu, device, compiler, ridge_version;
  std::int64_t threads = 0;
  std::uint64_t memory_bytes = 0;
};

// performance_summary.json. `timestamp` is ISO 8601 in UTC. MB are 10^6 bytes; what is not a number
// becomes null.
std::string performance_json(const TrainOptions& options, const RunRecord& record,
                             const PerformanceSummary& summary, const SystemInfo& system,
                             const std::string& timestamp);

}  // namespace ridge
