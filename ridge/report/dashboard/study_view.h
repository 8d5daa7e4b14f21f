#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "ridge/study/store.h"

namespace ridge {

// What `ridge study show NAME --json` says of a study (study/study_text.h), with the sentences that
// a reader has to know and the curve of each law, as points. Of runs that carry the name of a study
// which this store does not have, the same as far as they tell it (study/gathered_study.h).
nlohmann::ordered_json study_view(Store& store, std::string_view study);

}  // namespace ridge
