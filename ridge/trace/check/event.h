#pragma once

// An event of a trace as the rules of other tools see it: of each member that one of them asks for,
// what it is and its value. Format: "Trace Event Format" of the Chromium project, in the dialect of
// PyTorch's profiler.

#include <cstdint>
#include <optional>
#include <string_view>

namespace ridge::trace {

// A JSON value as far as a rule asks for it.
struct TraceValue {
  enum class Is : std::uint8_t { missing, null, number, text, object, other };

  Is is = Is::missing;
  bool integer = false;    // a number without a fraction or an exponent
  double number = 0;       // 0 unless it is one
  std::uint64_t bits = 0;  // an integer; a hash of a list, an object or a truth value
  std::string_view text;   // empty unless it is text

  bool given() const { return is != Is::missing && is != Is::null; }
  std::int64_t signed_bits() const { return static_cast<std::int64_t>(bits); }
};

// Equal numbers are equal whatever they are written as.
bool operator==(const TraceValue& a, const TraceValue& b);

// A number that stands for a value where values are only compared; equal integers and equal texts
// have equal ones. None for a missing value or null.
std::optional<std::uint64_t> identity_of(const TraceValue& value);

// An event of a trace, or what stands in the place of one. Texts last as long as the piece of the
// trace that is parsed.
struct TraceEvent {
  using Is = TraceValue::Is;
  enum class Category : std::uint8_t {
    none,  // missing, null or no text
    cpu_op,
    runtime,  // cuda_runtime and cuda_driver
    kernel,
    copy,  // gpu_memcpy
    fill,  // gpu_memset
    annotation,
    python_function,
    flow_to_gpu,      // ac2g
    synchronization,  // cuda_sync
    trace,            // "Trace", the profiler's own slices
    other
  };

  static Category category_of(std::string_view text);
  static bool is_on_device(Category category) {
    return category == Category::kernel || category == Category::copy || category == Category::fill;
  }

  std::uint32_t index = 0;  // in the list of events
  bool object = false, null = false;
  char phase = 0;  // 'X'; 0 if it has none, '?' if it is no letter
  Category category = Category::none;
  TraceValue name, category_name, begin, duration, process, thread, id;  // times in us
  Is args_is = Is::missing;
  // of its args
  TraceValue correlation, external, sequence, stream, device;
  bool has_shapes = false, has_module = false;  // "Input Dims", "Python module id"
  bool has_name = false, has_labels = false, has_sort_index = false;

  bool on_device() const { return is_on_device(category); }
  // Has what a slice needs; other tools take it for one whatever its phase is.
  bool timed() const { return begin.is == Is::number && duration.is == Is::number; }
  bool slice() const { return phase == 'X'; }
  double end() const { return begin.number + duration.number; }  // us
};

// The identity of a process and a thread of an event together.
std::uint64_t track_of(const TraceEvent& event);

// How many events something concerns, and the first of them in the file.
struct TraceTally {
  std::uint64_t count = 0;
  std::optional<std::uint32_t> first;  // its index

  void note(std::uint32_t event, std::uint64_t times = 1);
  void add(const TraceTally& other);
  TraceTally after(std::uint32_t before) const;  // the same where so many events come before
};

}  // namespace ridge::trace
