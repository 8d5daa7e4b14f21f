#pragma once

namespace ridge {

// Whether a GPU is to count the use of all its units, which takes more passes than what it counts
// by default: the environment has RIDGE_GPU_COUNTERS=all.
bool counts_all_units();

}  // namespace ridge
