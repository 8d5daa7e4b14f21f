#pragma once

#include <optional>
#include <span>

#include "ridge/base/statistics.h"

namespace ridge {

// The 95 % interval of mean(b) - mean(a), for two independent series that may scatter differently
// (Welch's t, 1947). None if one of them has fewer than two values.
std::optional<Interval> mean_difference_interval(std::span<const double> a,
                                                 std::span<const double> b);

// The t between whose negative and itself Student's distribution has the probability `within`, at
// most 0.999, for `freedom` of at least 1: 12.706 for 0.95 and 1.
double student_t(double within, double freedom);

}  // namespace ridge
