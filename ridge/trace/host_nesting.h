#pragma once

// The slices of each thread of the host, which nest.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ridge/trace/trace.h"

namespace ridge::trace {

using Row = std::uint32_t;  // of a trace's columns
inline constexpr Row no_row = std::numeric_limits<Row>::max();

// A stretch of a thread's time in which nothing changed that a reader has a name for.
struct HostStretch {
  std::int64_t begin_ns, end_ns;
  Row annotation;  // the outermost that is no step's; no_row if there is none
  Row operation;   // the outermost operator or call; no_row if there is none
};

// Puts the rows of one track in the order of time, outer slices before those within them.
void sort_outer_first(const EventColumns& events, std::vector<Row>& rows);

class HostNesting {
 public:
  explicit HostNesting(const Trace& trace);

  // The operator that a row of the host is, or stands in: the innermost; no_row if in none.
  Row operation_of(Row row) const { return operation_[row]; }
  // The slice around a row on its thread; no_row if there is none.
  Row parent_of(Row row) const { return parent_[row]; }
  // Its time less that of the operators and calls within it.
  std::int64_t self_ns(Row row) const { return self_ns_[row]; }

  // The named stretches of a track, in the order of time.
  const std::vector<HostStretch>& stretches(std::uint32_t track) const { return stretches_[track]; }

 private:
  void nest(const Trace& trace, std::vector<Row>& rows);

  std::vector<Row> operation_, parent_;
  std::vector<std::int64_t> self_ns_;
  std::vector<std::vector<HostStretch>> stretches_;  // by track
};

// The number of an annotation ProfilerStep#N; -1 if it is none.
std::int64_t step_number(std::string_view name);

}  // namespace ridge::trace
