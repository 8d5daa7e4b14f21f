#pragma once

#include <cstdint>
#include <filesystem>

#include "ridge/device/communicator.h"
#include "ridge/graph/graph.h"
#include "ridge/run/executor.h"
#include "ridge/session/options.h"

namespace ridge {

// A checkpoint: every parameter and all optimizer state under their names in the graph, and as
// metadata "format" ("ridge-checkpoint-1"), "step" (the optimizer steps done) and "options" (JSON,
// of those that decide the course of the run: equal runs give equal files wherever they ran). The
// data cursor is the step: batch i of a source is a function of the seed and i alone, and so is
// every random number. Written atomically; IoError if the system refuses.
//
// All ranks call it and write the file together, each what it alone has and a part of what all
// have, and go on together; where a rank does not see the file that the first one makes, which may
// be on another machine's disk, the first one writes all of it. The first one throws IoError,
// whichever of them met it. `ranks` is null where there is one alone.
void write_checkpoint(const std::filesystem::path& path, const RunOptions& options,
                      std::int64_t step, Graph& graph, Executor& executor,
                      Communicator* ranks = nullptr);

// Restores all that write_checkpoint() wrote, after everything was checked, and returns the step.
// FormatError if the file is no checkpoint or its tensors are not exactly the graph's; UsageError
// if an option that decides the course of the run (seed, batch, data, ..) differs.
std::int64_t read_checkpoint(const std::filesystem::path& path, const RunOptions& options,
                             Graph& graph, Executor& executor);

// Makes a checkpoint's parameters and buffers the initial values of a graph that has no optimizer.
// FormatError as above.
void initialize_from_checkpoint(const std::filesystem::path& path, Graph& graph);

// The options of the run that wrote a checkpoint, as course_of() has them. FormatError if the file
// is no checkpoint.
RunOptions options_of_checkpoint(const std::filesystem::path& path);

}  // namespace ridge
