#pragma once

#include <cstddef>
#include <span>

#include "ridge/plan/lifetimes.h"

namespace ridge {

// Whether a CachingAllocator can serve runs of a graph from so many bytes, which the device gives
// away in multiples of `granularity`: tensors that come and go leave pieces between them that are
// too small for the next. `workspace` is by node; `packed_bytes` are taken beside persistent
// values. Allocates nothing.
bool can_allocate(const Graph& graph, const Lifetimes& lifetimes,
                  std::span<const std::size_t> workspace, std::size_t packed_bytes,
                  std::size_t available, std::size_t granularity);

}  // namespace ridge
