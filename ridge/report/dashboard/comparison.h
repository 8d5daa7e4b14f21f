#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "ridge/study/run_row.h"

namespace ridge {

struct KeptRun {
  RunRow row;
  RunDocument document;
};

// Runs side by side: the options in which they differ, metrics with their ratios to the first run,
// how their step times are distributed, their losses, and their operators joined by name.
// docs/use/dashboard.md describes the members.
nlohmann::ordered_json comparison_json(std::span<const KeptRun> runs);

}  // namespace ridge
