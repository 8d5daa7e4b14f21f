#pragma once

// Runs that no study of this store made, seen as if one had: those that a person names, or that
// carry the name of a study whose definition stayed in another store.

#include <string>
#include <vector>

#include "ridge/study/store.h"
#include "ridge/study/study_result.h"

namespace ridge {

// A variant for each different configuration, machine and program, named by what differs from the
// others; its runs are its rounds, the oldest first. Runs that differ in their seed or in what is
// profiled alone are rounds of one variant; so are, where `name` is that of a study, those of
// different programs, as within a study itself. Runs without a step time count, and measure
// nothing. UsageError for no runs, and for more than max_variants variants.
StudyResult gather_study(Store& store, std::string name, std::vector<RunRow> runs);

// The study of that name, as it was defined; or else the runs that carry its name, the newest
// `most`. UsageError, with the nearest name, if there is neither.
StudyResult find_study_result(Store& store, std::string_view name, std::int64_t most = 5000);

}  // namespace ridge
