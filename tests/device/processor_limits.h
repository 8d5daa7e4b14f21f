#pragma once

#include "ridge/device/activity.h"

namespace ridge::testing {

// The multiprocessors of a GPU of compute capability 9.0 that has 132 of them.
inline constexpr ProcessorLimits sm90_limits{.count = 132,
                                             .warp_size = 32,
                                             .warps = 64,
                                             .blocks = 32,
                                             .registers = 65536,
                                             .shared_memory = 233472,
                                             .shared_memory_reserved = 1024};

}  // namespace ridge::testing
