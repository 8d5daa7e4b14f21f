#pragma once

#include <cstdint>

#include "ridge/cli/rocm_profiler.h"
#include "ridge/cli/terminal.h"
#include "ridge/report/profiled_run.h"

namespace ridge {

// These do nothing for a profile without files, which all ranks of a run but the first have: they
// record as the first does, and leave writing to it.

// Before the run: says what will be written where, makes the directories, and throws IoError if a
// file cannot be written.
void begin_rocm_profile(const RocmProfile& profile, Terminal& terminal);

// Has all steps recorded of the run that is planned, up to `last_step`; all but the last few of a
// GPU that is to count in hardware, which it does in those.
void record_for_rocm(const RocmProfile& profile, const Device& device, RunPlan& plan);

// Writes the files and prints the tables that were asked for. IoError if the system refuses one.
// `listener` hears that ceilings are measured for a table that needs them.
void write_rocm_files(const RocmProfile& profile, const ProfileContent& content,
                      RunListener& listener, Terminal& terminal);

}  // namespace ridge
