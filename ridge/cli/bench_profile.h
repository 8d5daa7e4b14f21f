#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ridge/cli/bench_request.h"
#include "ridge/cli/profiling.h"

namespace ridge {

// Prints what the workshop's flags ask for of what was recorded, writes the trace, and returns the
// operators and modules as JSON; null if none were asked for.
nlohmann::ordered_json print_bench_profile(const BenchRequest& request,
                                           const ProfileContent& content, const Summary& summary,
                                           TerminalListener& listener, Terminal& terminal);

}  // namespace ridge
