#pragma once

#include <cstddef>

#include "ridge/base/statistics.h"

namespace ridge {

// Where the probability of something lies, with 95 %, that happened so often in so many independent
// trials (Clopper and Pearson, 1934): [0, 1] for no trials.
Interval binomial_interval(std::size_t successes, std::size_t trials);

}  // namespace ridge
