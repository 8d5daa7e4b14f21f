#pragma once

#include <filesystem>

#include "ridge/profile/chrome_trace.h"

namespace ridge {

// Writes a recording in Perfetto's protobuf (.pftrace), atomically and in bounded memory: the same
// slices as write_chrome_trace, with allocations on a track of their own, counters of live and
// reserved bytes, the loss of each step, what a device did and the state of the card. Times are
// nanoseconds since 1970-01-01.
TraceSize write_perfetto(const std::filesystem::path& path, const Recording& recording,
                         const TraceOptions& options = {});

}  // namespace ridge
