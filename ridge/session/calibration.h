#pragma once

#include <functional>
#include <span>

#include "ridge/graph/graph.h"
#include "ridge/passes/int8.h"
#include "ridge/run/executor.h"

namespace ridge {

// The largest magnitude of each of these values in a forward pass over what `feed` writes, and
// weights drawn from the seed. Not a percentile: these numbers do not depend on how many were seen,
// and no result that is met again is cut off.
Int8Ranges calibrate(const Graph& graph, std::span<const ValueId> values, Device& device,
                     std::uint64_t seed, const std::function<void(Executor&)>& feed);

}  // namespace ridge
