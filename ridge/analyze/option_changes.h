#pragma once

// What other options would make of a run that was recorded: its compile mode, its precision, its
// batch. Each is planned on a graph of its own, as it would run.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/op_rules.h"
#include "ridge/session/options.h"

namespace ridge {

struct BottleneckReport;  // analyze/bottlenecks.h

struct OptionChange {
  std::string name;   // "default", "bf16", "batch 64"; several with "+" between them
  std::string flags;  // that make it: "--version default"
  RunOptions options;
  std::int64_t samples = 0;       // of a step
  std::int64_t samples_now = 0;   // of a step of the run that was recorded
  std::int64_t kernels = 0;       // of a step
  Cost work;                      // of a step
  bool rounds_otherwise = false;  // another precision, whose results differ
  std::size_t peak_bytes = 0;     // of the device, as planned
  // Of a step, expected: the graph's least time at the ceilings, each operator as many times above
  // its own as it was in the run that was recorded.
  double seconds = 0;

  double seconds_per_sample() const { return seconds / static_cast<double>(samples); }
};

// The changes that are expected to make a sample faster by half a percent or more, the most worth
// first, of all compile modes (or versions) after the run's own, all precisions that the device
// has, and batches up to 64 times as large that fit in its memory; and what the best of each kind
// make together. `report` is of a recording of `graph`, which the options gave. In a batch, what
// larger kernels gain by filling the device better is not counted, for no floor tells of it.
std::vector<OptionChange> changes_of(const RunOptions& options, Device& device, const Graph& graph,
                                     const BottleneckReport& report);

}  // namespace ridge
