#pragma once

// What `ridge plan` says of its searches.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ridge/analyze/plan_search.h"

namespace ridge {

std::string search_text(const RunOptions& options, const PlanSearch& search,
                        std::string_view against = "");
nlohmann::ordered_json json_of(const PlanSearch& search);

std::string difference_text(const PlanDifference& difference);
nlohmann::ordered_json json_of(const PlanDifference& difference);

}  // namespace ridge
