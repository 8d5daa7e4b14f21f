#pragma once

// A Chrome trace as other tools see it: its text, whose JSON they read with more or less patience,
// and the members of its events that they ask for. Format: "Trace Event Format" of the Chromium
// project, in the dialect of PyTorch's profiler.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

// Where one reader of JSON takes a file and another does not.
struct TraceFile {
  std::string_view name;             // without directories
  std::size_t bytes = 0;             // uncompressed
  bool compressed = false;           // it is a gzip file, whatever its name says
  bool byte_order_mark = false;      // at its begin
  bool numbers_beyond_json = false;  // NaN, Infinity or -Infinity
  bool control_characters = false;   // unescaped within a string
  bool invalid_utf8 = false;
  bool rank_text = false;  // '"rank": ' with the space
  bool bare_list = false;  // of events, with no object around it

  bool said_to_be_compressed() const { return name.ends_with(".gz"); }
  bool is_what_its_name_says() const { return compressed == said_to_be_compressed(); }
};

// Parses the text of a trace, also what only lenient readers take, and notes in `file` what that
// was. FormatError if no reader can parse it, or if it has no list of events.
nlohmann::json parse_trace(std::string_view text, TraceFile& file);

// An event of a trace, or what stands in the place of one.
struct TraceEvent {
  enum class Is : std::uint8_t { missing, null, number, text, object, other };
  enum class Category : std::uint8_t {
    none,  // missing, null or no text
    cpu_op,
    runtime,  // cuda_runtime and cuda_driver
    kernel,
    copy,  // gpu_memcpy
    fill,  // gpu_memset
    annotation,
    python_function,
    flow_to_gpu,  // ac2g
    trace,        // "Trace", the profiler's own slices
    other
  };

  TraceEvent(const nlohmann::json& event, std::size_t position);

  const nlohmann::json* source;
  std::size_t index;  // in the list of events
  bool object = false;
  char phase = 0;  // 'X'; 0 if it has none, '?' if it is no letter
  Category category = Category::none;
  Is name_is = Is::missing, category_is = Is::missing, begin_is = Is::missing,
     duration_is = Is::missing, args_is = Is::missing, process_is = Is::missing,
     thread_is = Is::missing;
  std::string_view name, category_name;  // empty unless they are text
  double begin = 0, duration = 0;        // us; 0 unless they are numbers
  const nlohmann::json *process = nullptr, *thread = nullptr;
  const nlohmann::json* args = nullptr;  // if it is an object
  // These of its args, since many rules ask for them.
  const nlohmann::json *correlation = nullptr, *stream = nullptr, *device = nullptr;

  bool on_device() const {
    return category == Category::kernel || category == Category::copy || category == Category::fill;
  }
  // Has what a slice needs; other tools take it for one whatever its phase is.
  bool timed() const { return begin_is == Is::number && duration_is == Is::number; }
  bool slice() const { return phase == 'X'; }

  const nlohmann::json* member(const char* key) const;    // of the event; nullptr if missing
  const nlohmann::json* argument(const char* key) const;  // of its args

 private:
  void find_arguments();
};

// How many events something concerns, and the first of them in the file.
struct TraceTally {
  std::uint64_t count = 0;
  const nlohmann::json* first = nullptr;

  void note(const nlohmann::json* event);
};

TraceEvent::Is kind_of(const nlohmann::json* value);

// A number that stands for a JSON value where values are only compared; equal numbers and equal
// texts have equal ones. None for a missing value or null.
std::optional<std::uint64_t> identity_of(const nlohmann::json* value);

// The identity of a process and a thread of an event together.
std::uint64_t track_of(const TraceEvent& event);

}  // namespace ridge
