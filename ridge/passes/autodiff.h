#pragma once

#include <span>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// Appends the nodes that compute d(loss)/d(value) for each of `wrt`, in the backward phase, each
// under the scope of the forward node it belongs to. `loss` is a scalar; `seed` is d/d(loss), 1 for
// the plain gradient and 1/n to average over n accumulated batches. If `scale`, an f32 scalar, is
// given, the gradients are those of the loss times it. UsageError if the loss does not
// depend on one of `wrt` or an operator in between has no gradient.
std::vector<Value> gradients(Value loss, std::span<const Value> wrt, float seed = 1.0f,
                             Value scale = {});

}  // namespace ridge
