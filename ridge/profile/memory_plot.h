#pragma once

#include <cstddef>
#include <string>

#include "ridge/profile/recording.h"

namespace ridge {

// Live memory over the step that holds the peak, drawn in characters, with its phases below.
std::string memory_timeline_text(const Recording& recording, std::size_t width = 72);

// memory_timeline.svg: all recorded steps, and below them the step that holds the peak with its
// phases, stacked by what the memory is used for. Follows the reader's light or dark scheme.
std::string memory_timeline_svg(const Recording& recording);

// The step that holds the recording's peak; all of it if no step was recorded.
struct PeakStep {
  std::int32_t step = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};
PeakStep peak_step(const Recording& recording);

// The distance of an axis' ticks: 1, 2 or 5 times a power of ten, so that at most `ticks` of them
// reach `top`.
double tick_distance(double top, int ticks);

}  // namespace ridge
