#pragma once

#include <string>
#include <vector>

#include "ridge/trace/report.h"
#include "ridge/trace/timeline.h"

namespace ridge {

// The texts of a timeline's names and tracks, which outlive the trace.
struct DrawnTimeline {
  explicit DrawnTimeline(const trace::Trace& trace, const trace::Work& work);

  trace::Timeline timeline;
  std::vector<std::string> names;   // by TextPool::Id; empty if no slice has it
  std::vector<std::string> tracks;  // by track
  std::vector<trace::Step> steps;
};

// The page of `ridge trace report --html`: one HTML file that needs no other and no network. The
// timeline is that of the first rank. Nothing in a trace can break the page or become part of its
// code.
std::string trace_page(const trace::RunReport& run, const DrawnTimeline& drawn);

}  // namespace ridge
