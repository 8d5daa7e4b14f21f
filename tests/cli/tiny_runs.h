#pragma once

#include <string>

#include "tests/cli/program.h"

namespace ridge {

// A model that takes no time, as flags to append to a command that times runs in turns.
inline const std::string tiny =
    " --hidden-dim 16 --n-layers 1 --n-heads 2 --vocab-size 32 --seq-len 8 --batch-size 2 "
    "--threads 1 --warmup-steps 1";

inline ProgramResult run(const Sandbox& sandbox, const std::string& command) {
  return sandbox.run(words_of(command));
}

}  // namespace ridge
