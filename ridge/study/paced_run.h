#pragma once

// `ridge train` and `ridge bench` as processes of a race.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ridge/study/race.h"

namespace ridge {

struct PacedRunConfig {
  std::filesystem::path program;
  std::vector<std::string> command;  // "train" or "bench", and its flags
  std::filesystem::path directory;   // new; the run's files go there, and the program's output
  double slowdown = 1;               // steps take so many times as long
  bool paced = true;
  std::function<bool()> stop;  // whether the user wants an end; may be null
};

// Starts a process. IoError if there is no such program. Its members throw UsageError with the
// program's own words where it refuses the command, Error where it crashes or hangs or leaves no
// record, GateInterrupted if the user stops it. Destroying it kills the process.
std::unique_ptr<Racer> start_run(const PacedRunConfig& config);

// Two programs that run one command.
struct ProcessRace {
  std::filesystem::path baseline, candidate;  // programs
  std::vector<std::string> command;
  std::filesystem::path scratch;  // a directory in which both get one
  double candidate_slowdown = 1;
  std::function<bool()> stop;  // may be null
};
// What race() needs of them. `processes` outlives it.
RaceHooks hooks_of(const ProcessRace& processes);

// UsageError for a command that cannot be run so: an empty one, one that neither trains nor
// benchmarks, or one that names a store.
void check_gated_command(const std::vector<std::string>& command);

// Words of a command line, apart by blanks; quotes keep blanks together. UsageError for a quote
// without its other.
std::vector<std::string> split_words(std::string_view line);

}  // namespace ridge
