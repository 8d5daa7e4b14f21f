#pragma once

#include <cstdint>
#include <filesystem>

#include "ridge/graph/graph.h"
#include "ridge/run/executor.h"
#include "ridge/session/options.h"

namespace ridge {

class SafetensorsFile;

// A checkpoint: every parameter and all optimizer state under their names in the graph, and as
// metadata "format" ("ridge-checkpoint-1"), "step" (the optimizer steps done) and "options" (JSON,
// of those that decide the course of the run: equal runs give equal files wherever they ran). The
// data cursor is the step: batch i of a source is a function of the seed and i alone, and so is
// every random number. Written atomically; IoError if the system refuses.
void write_checkpoint(const std::filesystem::path& path, const TrainOptions& options,
                      std::int64_t step, Graph& graph, Executor& executor);

// Restores all that write_checkpoint() wrote, after everything was checked, and returns the step.
// FormatError if the file is no checkpoint or its tensors are not exactly the graph's; UsageError
// if an option that decides the course of the run (seed, batch, data, ..) differs.
std::int64_t read_checkpoint(const std::filesystem::path& path, const TrainOptions& options,
                             Graph& graph, Executor& executor);

// Sets the parameters alone, from any safetensors file that has them all under their names.
void read_parameters(const SafetensorsFile& file, const std::filesystem::path& path, Graph& graph,
                     Executor& executor);

// The options of the run that wrote a checkpoint, as course_of() has them. FormatError if the file
// is no checkpoint.
TrainOptions options_of_checkpoint(const std::filesystem::path& path);

}  // namespace ridge
