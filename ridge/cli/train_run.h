#pragma once

#include <string>

#include "ridge/cli/keep_run.h"
#include "ridge/cli/rocm_profiler.h"
#include "ridge/cli/terminal.h"
#include "ridge/device/device.h"
#include "ridge/run/autotuner.h"
#include "ridge/session/session.h"

namespace ridge {

// `ridge train` of resolved options: runs, prints and writes all they ask for. Returns the exit
// code of the program; errors are thrown. Without `keep` the run is kept in no store, and without
// `rocm` it has no profile but that of its options. The record of the run is also written to
// `json_file`, unless that is empty.
int train(const RunOptions& options, Device& device, const SessionHooks& hooks = {},
          const KeepRequest* keep = nullptr, const std::string& json_file = {},
          const RocmProfile& rocm = {});

}  // namespace ridge
