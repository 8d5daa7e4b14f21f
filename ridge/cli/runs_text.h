#pragma once

#include <cstdint>
#include <string>

#include "ridge/study/store.h"

namespace ridge {

// Runs as an aligned table, and how many there are of them in all.
std::string runs_text(const RunPage& page);

// One run in full, but for its steps, of which it has the statistics.
std::string run_text(const RunRow& row, const RunDocument& document);

}  // namespace ridge
