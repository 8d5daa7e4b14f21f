#pragma once

// The events of a trace in columns, whoever wrote it: what the profilers of PyTorch (libkineto) and
// Ridge and Chrome's tracing write as JSON. A row is a slice of time; what connects rows (a launch
// and its kernel) are numbers in columns, so that flows need no rows.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ridge::trace {

// By the categories of libkineto, old and new.
enum class EventKind : std::uint8_t {
  other,              // a slice of any other category
  operation,          // cpu_op: an operator of PyTorch on the host
  call,               // cuda_runtime, cuda_driver: the host calls the card's interface
  kernel,             // on the card, as the next two
  copy,               // gpu_memcpy
  fill,               // gpu_memset
  annotation,         // user_annotation, such as ProfilerStep#3
  device_annotation,  // gpu_user_annotation: an annotation as the card saw it
  python,             // python_function
  synchronization,    // cuda_sync
  overhead,           // of the profiler
};

inline bool is_on_device(EventKind kind) {
  return kind == EventKind::kernel || kind == EventKind::copy || kind == EventKind::fill;
}

// Each text once, known by a number. The texts keep their places.
class TextPool {
 public:
  using Id = std::uint32_t;

  TextPool() { add(""); }
  Id add(std::string_view text);
  const std::string& operator[](Id id) const { return texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, Id> ids_;
};

// A thread of a process or a stream of a card, as the trace calls them.
struct Track {
  std::string process, thread;  // numbers or words
  std::string thread_name;      // empty if the trace does not say
  bool device = false;          // something ran there on a card
};

// The columns; all have the same length.
struct EventColumns {
  static constexpr std::int64_t none = -1;

  std::vector<EventKind> kind;
  std::vector<TextPool::Id> name;
  std::vector<std::uint32_t> track;
  std::vector<std::int64_t> begin_ns, duration_ns;  // since the trace's own zero
  std::vector<std::int64_t>
      correlation;                     // of a call and what it put on the card; none if it has none
  std::vector<std::int64_t> external;  // "External id": of an operator and what it called
  std::vector<std::int64_t> bytes;     // that a copy or a fill writes; else none
  std::vector<TextPool::Id> shape;     // "Input Dims" of an operator, "grid" of a kernel, as JSON
  std::vector<TextPool::Id> types;     // "Input type" of an operator, "block" of a kernel, as JSON
  // "Concrete Inputs" of convolutions, attention and gathers, as JSON: their work depends on it.
  std::vector<TextPool::Id> values;

  std::size_t size() const { return kind.size(); }
  std::int64_t end_ns(std::size_t row) const { return begin_ns[row] + duration_ns[row]; }
  void append(const EventColumns& rows);
};

// An instant at which an allocator gave memory, or took it back: then `bytes` are negative.
struct MemoryInstant {
  std::int64_t time_ns = 0, bytes = 0;
  std::int64_t allocated = 0, reserved = 0;  // in all, after it
  std::int32_t device = -1;                  // number of the card; -1: of the host
};

// A counter: one argument of the counter events of one name, of one process.
struct CounterSeries {
  std::string process;
  TextPool::Id name = 0, argument = 0, category = 0;
};

struct CounterPoint {
  std::int64_t time_ns = 0;
  double value = 0;  // until the next point of its series
  std::uint32_t series = 0;
};

// The collective that an event runs or asks for, as far as it tells.
struct CollectiveFact {
  std::uint32_t row = 0;
  TextPool::Id name = 0;   // "allreduce", as NCCL's kernels and record_param_comms have it
  TextPool::Id dtype = 0;  // "BFloat16"
  TextPool::Id group = 0;  // "0", the name of a process group
  std::int64_t in_elements = 0, out_elements = 0;
  std::int64_t group_size = 0;  // ranks; 0 if it does not say
};

// How far a file could be read.
struct Damage {
  std::uint64_t lost_bytes = 0;      // that no event could be read from
  std::uint64_t first_at = 0;        // where in the (unpacked) file the first of them stands
  std::uint64_t repaired_bytes = 0;  // no UTF-8 or no text, replaced
  bool cut_short = false;            // the file ends within its list of events
  std::string unpacking;             // "cut short" or "damaged": the gzip file; else empty

  bool any() const { return lost_bytes || repaired_bytes || cut_short || !unpacking.empty(); }
};

struct Trace {
  std::string file;  // its name
  EventColumns events;
  TextPool texts;
  std::vector<Track> tracks;
  std::map<std::string, std::string> process_names;
  std::vector<CollectiveFact> collectives;        // in the order of rows
  std::vector<MemoryInstant> memory;              // in the file's order
  std::vector<CounterSeries> counter_series;      // in the order in which they come first
  std::vector<CounterPoint> counters;             // in the file's order
  std::map<std::string, std::string> properties;  // members beside the events, as JSON
  std::uint64_t event_count = 0;                  // in the file, flows and metadata too
  std::uint64_t flow_count = 0;
  std::uint64_t bytes = 0;  // of its text, unpacked
  Damage damage;

  const std::string& name(std::size_t row) const { return texts[events.name[row]]; }
};

}  // namespace ridge::trace
