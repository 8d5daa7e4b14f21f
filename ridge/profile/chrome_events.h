#pragma once

// The events of a Chrome trace, in the dialect of PyTorch's profiler (chrome_trace.h).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ridge/profile/recording.h"

namespace ridge {

// How the events of a recording appear among those of others in one file.
struct ShownRank {
  std::string name = "ridge";
  std::int64_t process = 0, device = 0;  // the ids of its tracks
  std::int64_t sorted = 0;               // where they stand
  std::int64_t ahead_ns = 0;             // of its clock before that of the file
  std::uint64_t first_flow = 0;          // which the ids of its flows begin with
};

// Takes the JSON of an event, without a line break in it.
using EmitEvent = std::function<void(std::string_view event)>;

// Emits all events of a recording (chrome_trace.h lists their kinds).
void emit_chrome_events(const Recording& recording, const ShownRank& shown, const EmitEvent& emit);

// A string as JSON has it, whatever is in it: what is no UTF-8 is replaced.
std::string json_string(std::string_view text);

}  // namespace ridge
