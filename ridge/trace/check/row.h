#pragma once

#include <cstdint>
#include <deque>

#include "ridge/trace/check/event.h"

namespace ridge::trace {

// An event that lasts, as far as the tools' tables and trees depend on it. A trace has a row for
// almost every event, so rows are what the check's memory goes to.
struct TraceRow {
  std::uint64_t track = 0;                        // its process and thread
  double begin = 0, end = 0;                      // us; a time that is no number counts as 0
  std::uint64_t correlation = 0, external = 0;    // their identities, if it has them
  std::int64_t hta_stream = -1, hta_number = -1;  // args.stream and args.correlation, as HTA reads
                                                  // them; -1 is none
  std::uint32_t event = 0;                        // its index in the list of events
  TraceEvent::Category category = TraceEvent::Category::none;

  bool begins : 1 = false;    // its begin is a number
  bool timed : 1 = false;     // and its duration too
  bool slice : 1 = false;     // of phase X
  bool box : 1 = false;       // a slice with times that do not run backwards
  bool placed : 1 = false;    // it has a process and a thread
  bool has_args : 1 = false;  // whatever they are
  bool module : 1 = false;    // of PyTorch
  bool has_correlation : 1 = false, has_external : 1 = false;
  // By its name: it has one, and a spreadsheet can have it; it launches a graph, is "execute", or
  // is a launch that HTA has statistics of.
  bool named : 1 = false, writable : 1 = false;
  bool graph_launch : 1 = false, execute : 1 = false, known_launch : 1 = false;
  // In HTA's table: it is there, runs on the card, is a step, and computes to 0.5.0 and to 0.6.1.
  bool in_hta : 1 = false, hta_on_gpu : 1 = false, hta_step : 1 = false;
  bool hta_computes : 1 = false, hta_computes_newest : 1 = false;

  bool on_device() const { return TraceEvent::is_on_device(category); }
};

using TraceRows = std::deque<TraceRow>;

}  // namespace ridge::trace
