#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridge/trace/critical_path.h"
#include "ridge/trace/report.h"
#include "ridge/trace/timeline.h"

namespace ridge {

// The critical path as the page has it: what each slice of its lane is, and what that waited for.
struct DrawnPath {
  struct Slice {
    std::uint32_t share = 0;  // in path.shares
    trace::HeldBy held_by = trace::HeldBy::nothing;
    trace::TextPool::Id waited_for = 0;  // the name of it; 0 if it waited for nothing
  };
  trace::CriticalPath path;  // without its pieces
  std::vector<Slice> slices;
};

// The texts of a timeline's names and tracks, which outlive the trace.
struct DrawnTimeline {
  DrawnTimeline(const trace::Trace& trace, const trace::Work& work,
                const trace::HostNesting& nesting);

  trace::Timeline timeline;
  std::vector<std::string> names;   // by TextPool::Id; empty if no slice has it
  std::vector<std::string> tracks;  // by track
  std::vector<trace::Step> steps;
  std::optional<DrawnPath> path;  // if anything ran on a card

 private:
  void name(const trace::Trace& trace, trace::TextPool::Id id, std::uint32_t track);
  void keep_path(const trace::Trace& trace, trace::CriticalPath&& found);
};

// The page of `ridge trace report --html`: one HTML file that needs no other and no network. The
// timeline and the critical path are those of the first rank. Nothing in a trace can break the page
// or become part of its code.
std::string trace_page(const trace::RunReport& run, const DrawnTimeline& drawn);

}  // namespace ridge
