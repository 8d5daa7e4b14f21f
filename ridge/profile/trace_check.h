#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// What a consumer of Chrome traces in the dialect of PyTorch's profiler makes of one.
struct TraceVerdict {
  struct Problem {
    std::string what;         // "an X event without cat"
    bool fatal = false;       // the consumer refuses the trace, or shows it wrongly
    std::uint64_t count = 0;  // of the events that have it
    std::string first;        // the first of them, cut if it is long; empty if it is of none
  };
  std::string consumer;
  // Whether the rules were held against the consumer itself. Else what is fatal by its sources, as
  // they were read, says no more than that it may refuse the trace.
  bool tried = true;
  std::vector<Problem> problems;

  bool accepts() const;  // nothing is fatal
  bool refuses() const { return tried && !accepts(); }
};

struct TraceCheck {
  std::uint64_t events = 0, slices = 0;
  std::vector<TraceVerdict> verdicts;  // of every consumer
};

// Checks a trace from any program against what chrome://tracing and Perfetto, torch-tb-profiler,
// HolisticTraceAnalysis and TraceLens ask for. `file_name` matters to one of them. FormatError if
// `text` is no JSON or no trace.
TraceCheck check_trace(std::string_view text, std::string_view file_name);

std::string trace_check_text(const TraceCheck& check);

}  // namespace ridge
