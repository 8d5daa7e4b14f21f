#pragma once

#include <optional>

#include "ridge/cli/bench_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/device/device.h"

namespace ridge {

// Measures and prints the table that was asked for, and returns the program's exit code; nothing if
// none was.
std::optional<int> bench_table(const BenchRequest& request, Device& device, Terminal& terminal);

}  // namespace ridge
