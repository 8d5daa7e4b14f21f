#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "ridge/study/store.h"

namespace ridge {

// The runs of a study by variant, those of equal configuration and machine: of each the number of
// runs, its newest one, and the median, least and largest of each metric. Also which quantities
// vary and can be drawn: "x" of options and sizes, "y" of metrics.
nlohmann::ordered_json study_json(Store& store, std::string_view study);

// One quantity of a study's runs against another, which may be columns or numeric options: points
// by series, which is all that is equal but for x, each with the laws (study/law.h) that fit it, as
// text and as a curve. UsageError for a name that no run has a number for.
nlohmann::ordered_json fits_json(Store& store, std::string_view study, std::string_view x,
                                 std::string_view y);

}  // namespace ridge
