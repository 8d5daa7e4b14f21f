#pragma once

// Series of kept runs (study/run_series.h) as the dashboard draws and names them.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/study/run_series.h"

namespace ridge {

// Indices, in order, of at most so many points (at least 4) that draw like all: the first, the
// last, and the least and the largest of each of equal spans of time.
std::vector<std::size_t> sampled(std::span<const SeriesPoint> points, std::size_t at_most);

// What a metric of the runs of a filter was over time: of each of the `most` longest series the
// points, fewer of them if there are many, and the changes of its level, each with the runs and the
// commits on both sides. docs/use/dashboard.md describes the members.
nlohmann::ordered_json trend_json(Store& store, Configurations& configurations,
                                  std::string_view filter, std::string_view metric,
                                  std::size_t most = 8);

}  // namespace ridge
