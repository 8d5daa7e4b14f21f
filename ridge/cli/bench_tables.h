#pragma once

#include <optional>

#include "ridge/bench/session.h"
#include "ridge/cli/bench_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/device/device.h"

namespace ridge {

// Shows on the terminal, which outlives it, which kernels are being timed.
BenchHooks tuning_on(Terminal& terminal);

// Measures and prints the table that was asked for, and returns the program's exit code; nothing if
// none was.
std::optional<int> bench_table(const BenchRequest& request, Device& device, Terminal& terminal);

}  // namespace ridge
