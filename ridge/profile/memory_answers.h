#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ridge/profile/memory_report.h"

namespace ridge {

// Answers to the workshop's questions on the memory of a run, each with its question, from what was
// recorded; `report` is of that recording. None without memory and steps.
std::vector<std::pair<std::string, std::string>> memory_answers(const Recording& recording,
                                                                const MemoryReport& report);

}  // namespace ridge
