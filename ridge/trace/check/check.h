#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/trace/read.h"

namespace ridge::trace {

// What a tool makes of a Chrome trace in the dialect of PyTorch's profiler.
struct TraceVerdict {
  struct Problem {
    std::string rule;                   // its name, such as "hta-file-name"
    std::string what;                   // a sentence: what it is, what the tool does, what to do
    bool fatal = false;                 // the tool refuses the trace
    std::vector<std::string> versions;  // of the tool that it concerns
    std::uint64_t count = 0;            // of the events that have it
    std::string first;  // the first of them, cut if it is long; empty if it is of none
  };
  std::string consumer;            // the tool's name
  std::string shown;               // the same with its versions
  std::vector<std::string> tried;  // the versions that the rules were held against
  std::vector<Problem> problems;   // in the order of the rules

  std::vector<std::string> refusing() const;  // those of the versions that refuse the trace
  bool accepts() const { return refusing().empty(); }
};

struct TraceCheck {
  std::uint64_t events = 0, slices = 0;
  std::vector<TraceVerdict> verdicts;  // of every tool
};

// Checks a trace from any program, gzip's or not, against the rules of rules.h. IoError if it
// cannot be read; FormatError if it is no JSON that one of the tools reads, or no trace.
TraceCheck check_trace(const std::filesystem::path& file, const ReadOptions& options = {});

// The same of what a file of this name, which matters to the tools, would hold.
TraceCheck check_trace(std::string_view file, std::string_view name,
                       const ReadOptions& options = {});

std::string trace_check_text(const TraceCheck& check);
std::string trace_check_json(const TraceCheck& check);

}  // namespace ridge::trace
