#pragma once

// How much faster several ranks are than one, where a study varies their number.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/study/study_result.h"

namespace ridge {

// One number of ranks against one rank alone, of variants that differ in nothing else. Weak: each
// rank has as many samples as the one alone. Strong: together they have as many.
struct ScalingPoint {
  std::size_t alone = 0, together = 0;  // variants
  std::int64_t ranks = 1;
  bool is_weak = true;
  std::int64_t batch_of_rank = 0, batch = 0;
  double samples_per_second_alone = 0, samples_per_second = 0;  // medians over the rounds
  // Of what so many ranks alone would do. Over the rounds in pairs: what disturbed one disturbed
  // the other.
  Ratio efficiency;
};

// Weak ones first; within them by the variants of the study. Empty where no number of ranks varies.
std::vector<ScalingPoint> scaling_of(const StudyResult& result);

// "93.1 % (91.0 to 94.2)"
std::string efficiency_text(const Ratio& efficiency);

}  // namespace ridge
