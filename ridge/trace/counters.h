#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/trace/trace.h"

namespace ridge::trace {

// A counter of a trace over its time. A value holds until the next.
struct CounterSum {
  std::string process;   // its name, or number
  std::string name;      // "core 0 busy (%)"; with the argument's name, if it is not "value"
  std::string category;  // "system"
  std::uint64_t points = 0;
  double mean = 0, min = 0, max = 0;
  double max_at_us = 0;  // since the first event of the trace
};

// A series' name as tables and pictures have it, as "core 0 busy (%)".
std::string name_of(const Trace& trace, const CounterSeries& series);

// In the order of the file. Not those of an allocator, whose memory has a table of its own.
std::vector<CounterSum> counter_sums(const Trace& trace);

// The table "The system"; empty without counters. Those that are 0 all the time stand in a line,
// and of more than sixteen cores none has a row.
std::string counters_text(const std::vector<CounterSum>& counters);

}  // namespace ridge::trace
