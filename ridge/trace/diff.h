#pragma once

// The difference of two runs: what only one of them does in a step, or does in another time.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/trace/step_tree.h"

namespace ridge::trace {

enum class DiffKind : std::uint8_t {
  appeared,        // the first run does not do it
  vanished,        // the second does not
  changed_shape,   // the same operator, of inputs of another shape
  changed_kernel,  // the same operator of the same shape, by another kernel
  more_calls,
  fewer_calls,
  slower,  // as many calls
  faster,
  more_idle,  // the card waits longer for it
  less_idle,
};

std::string diff_kind_name(DiffKind kind);  // as in JSON: "changed_kernel"

// Times are means of a step, us; calls are those of a step.
struct DiffRow {
  DiffKind kind = DiffKind::slower;
  std::string path;  // annotations and operators, outermost first: "Optimizer.step > aten::add_"
  std::string shape_before, shape_after;    // of the innermost operator's inputs, as JSON
  std::string kernel_before, kernel_after;  // empty: of the host, idle, or not there
  std::size_t kernels = 1;  // of an operator that only one run has, by name: all are in one row,
                            // which names the one that takes most
  std::optional<IdleCause> idle;
  double calls_before = 0, calls_after = 0;    // of the kernel, or of the operator on the host
  double before_us = 0, after_us = 0;          // of the step's time
  double ran_before_us = 0, ran_after_us = 0;  // that the kernel ran, also while others did

  double difference_us() const { return after_us - before_us; }
};

// How the time of a step divides, us.
struct StepSplit {
  double span = 0;
  double compute = 0;
  double exposed_communication = 0;  // no kernel computed
  double exposed_copy = 0;           // no kernel ran
  std::array<double, idle_causes> idle{};
};

struct OperatorDiff {
  std::string name;
  double calls_before = 0, calls_after = 0;  // in a step, wherever
  double host_before_us = 0, host_after_us = 0;
  double device_before_us = 0, device_after_us = 0;  // of the work that it launched itself
};

struct DiffSide {
  std::string file, device;
  std::optional<std::int64_t> rank;
  Damage damage;
  std::vector<std::int64_t> steps;  // the numbers of those compared; none: the whole trace
  std::vector<double> span_us;      // of each of them; or of the whole trace
  StepSplit split;                  // mean of them
};

struct TraceDiff {
  DiffSide before, after;
  bool of_host = false;  // nothing ran on a card: times are of the host's operators
  // The 95 % interval of the difference of the mean spans, us; none with fewer than two steps.
  std::optional<ridge::Interval> interval_us;
  std::vector<DiffRow> rows;            // largest difference first; they add up to that of the span
  std::vector<OperatorDiff> operators;  // all, by name; most host time of the second first

  double difference_us() const { return after.split.span - before.split.span; }
  // The difference of the span that is in no row: rounding, and what is below a row's least.
  double rest_us() const;
};

// Compares the steps that the traces have in full: those of equal numbers if there are two of them
// or more, else all. FormatError if one is of a card and the other of a host, or has no work.
TraceDiff diff_of(const StepTree& before, const StepTree& after);

enum class Verdict : std::uint8_t { not_slower, slower, undecided };

// Whether a step takes longer by more than so many percent, by the lower end of the interval of
// 95 %. Undecided with fewer than two steps.
struct Judgement {
  Verdict verdict = Verdict::undecided;
  double least_percent = 0;  // by which it takes longer; negative if it may take less
};
Judgement judge(const TraceDiff& diff, double percent);

// `top`: at most so many rows a table. The JSON has all rows, with "schema": "ridge-trace-diff/1".
std::string diff_text(const std::vector<TraceDiff>& diffs, std::size_t top);
std::string diff_json(const std::vector<TraceDiff>& diffs);

}  // namespace ridge::trace
