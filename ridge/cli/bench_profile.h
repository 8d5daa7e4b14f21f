#pragma once

#include <string>

#include "ridge/cli/bench_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/profile/step_recorder.h"
#include "ridge/session/record.h"

namespace ridge {

// Which iterations of a benchmark are recorded, numbered as it prints them: the last few, and that
// of --flops-prof-step.
StepRecorder::Config bench_recorder_config(const BenchRequest& request);

// Prints what the workshop's flags ask for of what was recorded, writes the trace, and returns the
// operators and modules as JSON.
std::string print_bench_profile(const BenchRequest& request, Session& session,
                                const Summary& summary, const StepRecorder& recorder,
                                Terminal& terminal);

}  // namespace ridge
