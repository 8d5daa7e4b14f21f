#pragma once

// Orders the launches of a captured step for a device that runs several kernels at a time, and
// delays those that can wait.

#include <cstddef>
#include <span>
#include <vector>

#include "ridge/graph/op_rules.h"

namespace ridge {

// By launch: the earlier ones that it must follow, as order_of() (plan/hazards.h) gives it.
using Precedence = std::vector<std::vector<std::size_t>>;

// Finds the launches that can wait, because nothing on the longest chain needs them soon: true in
// the result. They would occupy multiprocessors that the next launch of the chain needs, and a
// device does not take those back; so each is made to follow what the first later launch that
// leaves multiprocessors idle follows. Weight gradients are such: only the optimizer needs
// them, and the gradient of attention leaves multiprocessors idle.
std::vector<bool> defer_background(Precedence& after, std::span<const Footprint> footprints);

// An order that respects `after`: of the launches that are ready, the one with the longest chain
// of followers comes first.
std::vector<std::size_t> critical_first(const Precedence& after);

}  // namespace ridge
