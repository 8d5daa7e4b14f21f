#pragma once

#include <string>
#include <vector>

#include "ridge/trace/device_work.h"
#include "ridge/trace/idle_time.h"
#include "ridge/trace/work_tables.h"

namespace ridge::trace {

// What would help a run most, by its trace.
struct Finding {
  std::string rule;      // that found it: "data-loader"
  std::string what;      // a sentence: what was seen
  std::string remedy;    // a sentence, in PyTorch's words
  std::string see;       // how to see it in the trace
  double gain_us = 0;    // of the span, at most
  double gain_part = 0;  // the same as a part of the span
};

struct FoundIn {
  const Trace& trace;
  const Work& work;
  const HostNesting& nesting;
  const TimeUse& use;
  const IdleTime& idle;
  const std::vector<KernelSum>& kernels;
  const LaunchStatistics& launches;
};

// Those that are worth a hundredth of the span, most gain first.
std::vector<Finding> findings_of(const FoundIn& in);

}  // namespace ridge::trace
