#pragma once

#include <cstddef>
#include <span>

#include "ridge/graph/graph.h"
#include "ridge/plan/lifetimes.h"

namespace ridge {

// The most bytes of tensors alive at once when the graph runs in its order and every value is
// released after its last use: exactly what an executor's allocator will report as its peak.
// `workspace` is by node.
std::size_t peak_live_bytes(const Graph& graph, const Lifetimes& lifetimes,
                            std::span<const std::size_t> workspace);

}  // namespace ridge
