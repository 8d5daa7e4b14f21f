#pragma once

// Fills the columns of a trace slice by slice: for formats that are read in one thread.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "ridge/trace/trace.h"

namespace ridge::trace {

// A row of EventColumns.
struct Slice {
  EventKind kind = EventKind::other;
  TextPool::Id name = 0;
  std::uint32_t track = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t correlation = EventColumns::none;
  std::int64_t bytes = EventColumns::none;
  TextPool::Id shape = 0, types = 0;
};

class TraceBuilder {
 public:
  // What the trace has already stays, and its tracks are known.
  explicit TraceBuilder(Trace& trace);

  TextPool::Id text(std::string_view text) { return trace_.texts.add(text); }
  TextPool::Id list(std::int64_t x, std::int64_t y, std::int64_t z);  // "[x,y,z]"
  std::uint32_t track(std::string_view process, std::string_view thread);
  Track& operator[](std::uint32_t track) { return trace_.tracks[track]; }
  // Leaves out what has times beyond 146 years; counts it all the same.
  void add(const Slice& slice);
  // The JSON that names a card in the properties of PyTorch's traces.
  void add_card(const std::string& id, std::string_view name);
  void finish();  // after the last

 private:
  Trace& trace_;
  std::map<std::pair<std::string, std::string>, std::uint32_t, std::less<>> tracks_;
  std::map<std::string, std::string> cards_;
};

// A range that a program marks by a name (NVTX, ROCTX). PyTorch's emit_nvtx() makes one of each
// operator: "aten::mm, seq = 3, op_id = 12, sizes = [[8, 4], [4, 16]]".
struct RangeName {
  EventKind kind = EventKind::annotation;  // or an operation
  std::string_view name;                   // without what PyTorch appends
  std::string shape;                       // "[[8,4],[4,16]]"; empty if it is not there
};
RangeName range_name(std::string_view text);

// "Memcpy HtoD (Pageable -> Device)", as PyTorch's profiler calls a copy. `from` and `to` are 'H',
// 'D' or 'A' (an array); memories may be empty.
std::string copy_name(char from, char to, std::string_view from_memory, std::string_view to_memory);

}  // namespace ridge::trace
