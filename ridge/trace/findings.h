#pragma once

#include <string>
#include <vector>

#include "ridge/trace/device_work.h"
#include "ridge/trace/idle_time.h"
#include "ridge/trace/work_tables.h"

namespace ridge::trace {

// A change that would help a run, as its trace shows it.
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
  const std::vector<OperatorSum>& operators;
  const std::vector<Row>& operators_of_work;  // operators_of_work()
  const LaunchStatistics& launches;
  const DataSheet* card;         // null if it is not known
  std::int64_t multiprocessors;  // of the card; 0 if the trace does not tell
};

// Each adds what it finds of operators and their kernels, gain and all.
void find_float32_products(const FoundIn& in, std::vector<Finding>& found);
void find_slow_operators(const FoundIn& in, std::vector<Finding>& found);
void find_uneven_kernels(const FoundIn& in, std::vector<Finding>& found);
void find_unfused_attention(const FoundIn& in, std::vector<Finding>& found);
void find_short_kernels(const FoundIn& in, std::vector<Finding>& found);
void find_small_batch(const FoundIn& in, std::vector<Finding>& found);

// Those that are worth a hundredth of the span, most gain first.
std::vector<Finding> findings_of(const FoundIn& in);

// The time in which one rank waits for a rank that comes late to collectives is no time of theirs.
struct LateRank {
  std::string name;          // of the rank that comes late
  double last_part = 0;      // of the collectives to which it comes last
  double waited_us = 0;      // by the rank of the findings
  bool is_this_one = false;  // then: by the first of the others
};

// Adds a finding of a rank that comes late, and takes what is waited for it from that of exposed
// communication.
void add_late_rank(std::vector<Finding>& findings, const LateRank& late, double span_us);

}  // namespace ridge::trace
