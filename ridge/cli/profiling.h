#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/cli/terminal.h"
#include "ridge/profile/step_recorder.h"

namespace ridge {

// What the options of a run ask to have recorded; null if that is nothing. Says why hardware
// counters are not to be had, if they were asked for.
std::unique_ptr<StepRecorder> recorder_of(Session& session, const StepRecorder::Config& config,
                                          Terminal& terminal);

// The window and the counters that the options of a run ask for.
StepRecorder::Config recorder_config(const RunOptions& options);

// Prints the reports that the options ask for and writes the profile directory. IoError if the
// system refuses some of its files; all others are there then.
void finish_profile(StepRecorder& recorder, Session& session, const Record& record,
                    Terminal& terminal);

// The ceilings of a session's device, as its schedule's products are held against them: those that
// are kept, or measured now in a hurry and kept. None, with the reason on the terminal, if that is
// not possible.
std::optional<Roof> roof_of_session(Session& session, Terminal& terminal);

}  // namespace ridge
