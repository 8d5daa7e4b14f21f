#pragma once

// A trace as a picture needs it: slices in lanes, as many as a page can hold.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/trace/critical_path.h"
#include "ridge/trace/device_work.h"

namespace ridge::trace {

// Slices that do not overlap, in the order of time. What is too short to be seen apart stands
// together: `count` slices, of which the longest gives the name.
struct Lane {
  std::uint32_t track = 0;
  int depth = 0;  // of the slices on their track: within so many others
  std::vector<std::int64_t> begin_ns, duration_ns;  // since the first begin of all
  std::vector<TextPool::Id> name;
  std::vector<std::uint32_t> count;
  std::vector<WorkClass> work;  // on a card; compute elsewhere
};

// The critical path as a lane, whose names are numbers of its pieces.
struct PathLane {
  static constexpr std::uint32_t no_lane = 0xFFFFFFFF;

  Lane slices;
  // The lane that has the work, call or annotation of each slice; no_lane if none has, or if
  // several pieces stand together.
  std::vector<std::uint32_t> lane;
};

struct Timeline {
  std::int64_t duration_ns = 0;
  std::int64_t resolution_ns = 0;  // slices at least this long stand alone; 0: all do
  // Within it all slices stand alone: a step in the middle of the trace, if there are steps.
  std::optional<Interval> detail;
  std::vector<Lane> lanes;    // those of cards first
  PathLane path;              // empty unless it is drawn
  std::int64_t begin_ns = 0;  // of all
};

// With at most about so many slices, and half as many within the stretch in detail; and with the
// critical path, if it is given.
Timeline timeline_of(const Trace& trace, const Work& work, std::size_t most_slices,
                     const CriticalPath* path = nullptr);

}  // namespace ridge::trace
