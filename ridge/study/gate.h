#pragma once

// The gate: whether a program is as fast, as small and as right as another one. What it compares,
// and what it found.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/study/decision.h"
#include "ridge/study/run_row.h"

namespace ridge {

// The least change that counts: relative, or in the metric's unit.
struct LeastEffect {
  double value = 0;
  bool relative = true;
};

struct GateMetric {
  enum class Kind : std::uint8_t {
    timed,    // measured again and again, compared by statistics
    counted,  // the same at every run of a program: a larger number is a regression
    loss,     // the losses of all steps, compared in both directions
  };
  std::string_view name;  // "time"
  std::string_view unit;  // "s", "bytes"; empty for counts
  Kind kind;
  bool is_default;  // compared unless others are named
  LeastEffect least_effect;
};
// Step time, its phases, peak memory, kernels and FLOPs of a step, losses.
std::span<const GateMetric> gate_metrics();

// The losses of so many steps are compared, from the first on. Sums in another order change them by
// some units in the last place, and later steps multiply that.
inline constexpr std::size_t losses_compared = 50;

// A metric that is compared, with the least effect that counts.
struct GateCriterion {
  const GateMetric* metric = nullptr;
  LeastEffect least_effect;
  bool is_default = true;  // nobody asked for another least effect
  bool is_timed() const { return metric->kind == GateMetric::Kind::timed; }
};
// The metrics of `names`, or the default ones if there are none, with least effects such as
// "time=1%" or "memory=1MB". UsageError for a metric that there is not, or a value that is none.
std::vector<GateCriterion> criteria_of(std::span<const std::string> names,
                                       std::span<const std::string> least_effects);
std::string to_string(const LeastEffect& effect, const GateMetric& metric);  // "2 %", "1,024 bytes"

// What was found of one metric of one command.
struct MetricResult {
  std::string metric, unit;
  std::string least_effect;  // as text
  LeastEffect effect;
  GateVerdict verdict = GateVerdict::undecided;
  std::optional<double> baseline, candidate;  // in the metric's unit; the median of what is timed
  std::optional<double> change;               // relative
  std::optional<Interval> interval;           // of the change, at the level of the decision
  std::optional<double> p_value;              // of what is timed; see SequentialDecision::p_value()
  std::size_t pairs = 0;                      // of processes
  std::string note;                           // "bit equal in 40 steps"
};

struct CommandResult {
  std::string command;  // "train --num-steps 20"
  std::vector<MetricResult> metrics;
  std::vector<std::string> notes;  // on how it was measured
  std::string fault;               // why nothing was found out; empty if something was
  double seconds = 0;              // that it took
};

struct GateResult {
  enum class Outcome : std::uint8_t { fine, regression, undecided, failed };
  std::string baseline, candidate;  // what was compared, for a person
  std::vector<CommandResult> commands;
  double false_alarms = 0.005;
  Outcome outcome() const;
};
std::string_view name_of(GateResult::Outcome outcome);

// Finds the regressions among all timed metrics together, by their p-values: what is undecided is a
// regression where Benjamini and Hochberg's procedure at the rate of false alarms says so and the
// change is as large as the least effect.
void control_false_discoveries(GateResult& result);

// A run as the gate compares it.
struct GatedRun {
  RunRow row;
  std::vector<double> losses;  // by step; NaN for what is no number
  std::string options;         // configuration_of()
};
GatedRun gated_run(const RunDocument& document);  // FormatError: see row_of()

// Compares what is no time. Of several runs a regression is what holds of every pair of them, so
// that what differs from run to run of one program is none.
MetricResult compare_counted(const GateCriterion& criterion, std::span<const GatedRun> baseline,
                             std::span<const GatedRun> candidate);

// An empty result of a criterion.
MetricResult result_of(const GateCriterion& criterion);

// The user stopped the gate.
struct GateInterrupted : Error {
  GateInterrupted() : Error("interrupted") {}
};

}  // namespace ridge
