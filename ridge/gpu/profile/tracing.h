#pragma once

#include <cstddef>
#include <memory>

#include "ridge/device/activity.h"

namespace ridge::gpu {

// A tracer by the profiling interface of CUDA's toolkit (CUPTI), for all devices of this process.
// Nothing is opened and nothing costs time before start(). While it is active a launch takes about
// a microsecond more, and the kernels of a graph, each of which is then timed, start a little later
// after each other. At most `max_activities` are kept; what follows is counted as dropped.
std::unique_ptr<Tracer> make_tracer(std::size_t max_activities = std::size_t{8} << 20);

}  // namespace ridge::gpu
