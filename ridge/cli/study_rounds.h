#pragma once

#include <filesystem>
#include <string>

#include "ridge/cli/terminal.h"

namespace ridge {

// Measures what is left of a study in a store: each turn is a process of its own, which keeps its
// run itself. What a process does not survive is noted, and the study goes on; the variant takes no
// further turn. After the rounds each variant is profiled, if the study wants that. Returns the
// signal that interrupted it, which leaves all that is kept as it is; else 0. IoError if another
// process measures this study now, or a directory of it cannot be written.
int measure_study(const std::filesystem::path& store_file, const std::string& name,
                  Terminal& terminal);

}  // namespace ridge
