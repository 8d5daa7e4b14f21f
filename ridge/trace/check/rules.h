#pragma once

// The rules by which tools read a trace or refuse it, each as one row of a table. They were held
// against the tools themselves by tests/profile/consumers/trace_tools.py.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/trace/check/event.h"
#include "ridge/trace/check/facts.h"

namespace ridge::trace {

struct TraceTool {
  enum Name : std::uint8_t { chrome, perfetto, tb_profiler, hta, tracelens };

  std::string_view name;
  std::string_view shown;                   // with its versions
  std::span<const std::string_view> tried;  // the versions that the rules were held against
};

std::span<const TraceTool> trace_tools();  // in the order of TraceTool::Name

struct TraceRule {
  enum class Severity : std::uint8_t { refuses, warns };
  // What a rule about the whole trace found: nothing if the count is 0.
  struct Finding {
    std::uint64_t count = 0;
    std::optional<std::uint32_t> first;  // the index of an event
    std::string detail;                  // stands for "{}" in what the rule says
  };

  std::string_view name;
  TraceTool::Name tool;
  Severity severity;
  std::string_view versions;            // a part of the names of those concerned; "" is all
  bool (*of_event)(const TraceEvent&);  // one of the two is given
  Finding (*of_trace)(const TraceFacts&);
  // What is the matter; "{one slice has|# slices have}" is chosen by the count, which stands for #.
  std::string_view says;
  std::string_view why;  // what the tool does with it, and what to do
};

std::span<const TraceRule> trace_rules();

// Notes an event for each rule of single events that speaks of it, at the rule's index.
void note_rules_of(const TraceEvent& event, std::vector<TraceTally>& of_rules);

// The sentence of a rule: "12 slices have no name: HTA 0.5.0 ends with a TypeError".
std::string sentence_of(const TraceRule& rule, const TraceRule::Finding& finding);

}  // namespace ridge::trace
