#pragma once

#include <optional>

#include "ridge/session/options.h"

namespace ridge {

// What making the graph of a network ready takes in a process that starts now, in seconds: what
// earlier runs have kept of their choices is found, and nothing else is there. Nothing if that
// process comes to no good end, as where this one holds the memory.
std::optional<double> compile_seconds_of_new_process(const RunOptions& options);

}  // namespace ridge
