#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/plan/memory.h"
#include "ridge/session/session.h"

namespace ridge {

enum class Outcome : std::uint8_t { completed, interrupted, diverged, failed };
std::string_view name_of(Outcome outcome);

// Where a run took place; what is not known is empty or 0.
struct SystemInfo {
  std::string host, os, cpu, device, compiler, ridge_version;
  std::int64_t threads = 0;
  std::uint64_t memory_bytes = 0;
};
SystemInfo system_info(const Device& device, const RunOptions& options);

struct Validation {
  std::int64_t step = 0;  // steps done when it was taken
  Evaluation evaluation;
};

// The options, system, steps and memory of a run, as observed. One schema for every workload: it is
// printed, written, kept and compared.
struct Record {
  RunOptions options;  // resolved
  SystemInfo system;
  std::string timestamp;  // ISO 8601 in UTC

  WorkloadInfo workload;
  std::int64_t parameters = 0;        // elements
  std::int64_t samples_per_step = 0;  // accumulation included
  std::optional<StepCost> cost;       // exact work of one step
  double compile_seconds = 0;         // what making the graph ready took
  // Whether the backward pass updates parameters too, which is counted to its time.
  bool updates_in_backward = false;
  // Whether rates are over the device's time, without data: a benchmark's are.
  bool by_device = false;

  // The run. The first `warmup_steps` of the steps are left out of averages unless there are no
  // others, and so are those, by index, during which a profile was recorded.
  std::vector<StepReport> steps;
  std::int64_t warmup_steps = 0;
  std::vector<std::size_t> recorded;
  std::vector<Validation> validation;
  Outcome outcome = Outcome::completed;
  double seconds = 0;  // from the first step to the end
  // How many processors other programs kept busy meanwhile; none if the system does not tell.
  std::optional<double> busy_processors_of_others;
  // What a step's kernels need at the ceilings of the device, launches aside; 0: not known.
  double least_step_seconds = 0;

  // Memory.
  std::size_t peak_tensor_bytes = 0;      // most alive at once, evaluation included
  double mean_tensor_bytes = 0;           // of a step, over its kernels
  TensorBytes at_peak;                    // by use, as planned; its sum is a step's peak
  std::size_t reserved_bytes = 0;         // of the device, for tensors
  std::uint64_t tensor_allocations = 0;   // blocks the allocator handed out
  std::uint64_t peak_resident_bytes = 0;  // of the whole process; 0: not known
};

// A record of a session that has not run yet.
Record new_record(Session& session);
// Reads off a session what it knows of its memory now.
void note_memory(Record& record, const Session& session);

// Statistics of a record. Times are in seconds; those of steps and the rates leave out what
// Record leaves out of averages.
struct Summary {
  std::int64_t steps = 0;
  std::int64_t steps_left_out = 0;     // to warm up
  std::int64_t recorded_left_out = 0;  // recorded
  std::int64_t total_samples = 0;
  Statistics step;    // all of a step, data included
  Statistics device;  // from its first kernel to its last
  Statistics forward, backward, optimizer;
  // Steps that ran their phases one after the other and so give phase times, where other steps
  // overlap phases; they are left out of averages. 0: none, and the three above are empty.
  std::int64_t phase_steps = 0;
  bool phases_apart = false;            // the phases are of such steps
  std::optional<double> p90, p95, p99;  // of `device`, where there are steps beyond them
  double samples_per_second = 0;
  double tokens_per_second = 0;  // 0 where samples are no sequences
  double flops_per_second = 0;   // 0 if the cost is not known
  double causal_flops_per_second = 0;
  double macs_per_second = 0;  // multiply-accumulates of products

  // The spread is so wide that the mean says little: something else used the machine.
  bool unsteady() const { return device.variation() > unsteady_variation; }
  static constexpr double unsteady_variation = 0.025;
};
Summary summarize(const Record& record);

// How many steps loss scaling has skipped.
std::int64_t skipped_steps(const Record& record);

// The record as JSON, the content of performance_summary.json and of --export-json; the schema is
// ridge/report/schemas/performance_summary.schema.json. MB are 10^6 bytes; what is not known, or no
// number, is null.
std::string record_json(const Record& record, const Summary& summary);

// "step,loss,seconds,recorded" and a line for each step that is not left out to warm up.
std::string times_csv(const Record& record);

}  // namespace ridge
