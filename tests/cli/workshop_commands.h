#pragma once

// The workshop's command lines, for files that are compiled with RIDGE_SOURCE_DIR.

#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace ridge {

inline std::vector<Words> workshop_commands() {
  std::vector<Words> commands;
  std::ifstream file(RIDGE_SOURCE_DIR "/tests/cli/commands.txt");
  for (std::string line; std::getline(file, line);) commands.push_back(words_of(line));
  return commands;
}

// A model that takes no time, for as many steps as the line says.
inline const Words tiny_flags{"--hidden-dim", "16", "--n-layers", "1", "--n-heads",    "2",
                              "--vocab-size", "32", "--seq-len",  "8", "--batch-size", "2",
                              "--threads",    "1"};

}  // namespace ridge
