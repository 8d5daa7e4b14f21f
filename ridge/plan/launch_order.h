#pragma once

// In which order work is handed to a device that runs several pieces at a time, and what had better
// wait although it could begin.

#include <cstddef>
#include <span>
#include <vector>

#include "ridge/graph/op_rules.h"

namespace ridge {

// By piece of work: the earlier ones that it must follow, as order_of() (plan/hazards.h) gives it.
using Precedence = std::vector<std::vector<std::size_t>>;

// Finds the work that has time, because nothing on the longest chain waits for it soon: true in the
// result. It takes places on the device that the chain's next piece needs, and a device does not
// take them back; so it is made to wait for the first later piece of the chain that leaves it room,
// by letting it follow what that piece follows. Such are the gradients of weights: the optimizer
// alone needs them, and the gradient of attention leaves room.
std::vector<bool> defer_background(Precedence& after, std::span<const Footprint> footprints);

// An order that respects `after`, in which of the work that could be next the one comes first that
// the longest chain follows.
std::vector<std::size_t> critical_first(const Precedence& after);

}  // namespace ridge
