#pragma once

#include <optional>
#include <span>
#include <string>

#include "ridge/report/trace/trace_page.h"
#include "ridge/trace/named_traces.h"
#include "ridge/trace/report.h"

namespace ridge {

// The report of `ridge trace report`, and the timeline of the first rank that its page draws.
struct TraceReport {
  trace::RunReport run;
  std::optional<DrawnTimeline> drawn;

  std::string page() const { return trace_page(run, *drawn); }  // if it is drawn
};

// Reads the traces that are named (trace/named_traces.h) and reports on them. `draws`: for a page
// too.
TraceReport read_report(std::span<const std::string> names, bool draws,
                        const trace::ReadingProgress& progress);

}  // namespace ridge
