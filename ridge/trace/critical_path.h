#pragma once

// What the time of a run depended on: the chain of host time, launches, kernels, copies and
// collectives that ends with the last work of a card; and what the time would be if some of it were
// faster.

#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/trace/device_work.h"
#include "ridge/trace/replay.h"

namespace ridge::trace {

enum class PathKind : std::uint8_t {
  compute,
  communication,
  copy,
  host,     // operators, annotations and Python between calls
  call,     // within calls that launch or block
  latency,  // from a launch to its work, or from one work to the next
  unknown,  // nothing that the trace shows
};
std::string path_kind_name(PathKind kind);   // as in JSON: "compute"
std::string path_kind_words(PathKind kind);  // "kernels that compute"

struct PathShare {
  PathKind kind;
  std::string name;  // of the kernel, of what the host did, or of what was waited for
  double us = 0;
  std::uint64_t count = 0;
};

// A stretch of the path. They follow each other without a gap.
struct PathPiece {
  std::uint32_t share = 0;  // in CriticalPath::shares, which have its kind and name
  Row row = no_row;         // the work, the call, or what the host was in; none of a latency
  std::int64_t begin_ns = 0, end_ns = 0;
  HeldBy held_by = HeldBy::nothing;  // the kind of thing that it waited for last
  Row waited_for = no_row;           // that work or call
};

// The span if one thing were different, and all that waits for other things waited for them still.
struct WhatIf {
  std::string change;  // "no time in communication"
  double span_us = 0;
};

struct CriticalPath {
  double span_us = 0;             // from the first launch or work to the end of the last
  std::vector<PathShare> shares;  // which add up to the span, most time first
  std::vector<WhatIf> what_ifs;   // shortest span first
  std::vector<PathPiece> pieces;  // in the order of time
  std::uint64_t work = 0;         // kernels, copies and fills on the path
};

// The order is replayed: a piece of work begins when its launch has reached the card, the one
// before it on its stream has ended and, if the trace shows nothing else that it waited for, the
// last to end on another stream. A call that blocks ends after the work that it waited for. The
// host's time between calls is as it was; a call follows the last one that had returned, of any
// thread. What is left unexplained stays as long as it was, so that a replay without a change has
// the times of the trace. FormatError if nothing ran on a card.
CriticalPath critical_path(const Trace& trace, const Work& work, const HostNesting& nesting);
FormatError no_critical_path(const std::string& file);  // what it throws

std::string critical_path_text(const CriticalPath& path, std::size_t top);
std::string critical_path_json(const CriticalPath& path);

}  // namespace ridge::trace
