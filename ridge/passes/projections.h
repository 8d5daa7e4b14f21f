#pragma once

// Dense layers that read the same value are one wider layer, whose weight is the layers' weights
// one below the other.

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/passes/rewrite.h"

namespace ridge {

// y = x W^T as project() writes it: a product of x as rows, with W a parameter, or its conversion,
// that nothing else uses.
struct Projection {
  std::vector<NodeId> nodes;  // conversion and reshapes, where there are any, and the product, last
  ValueId x, y, weight;
};

// The projection that computes y, if one does.
std::optional<Projection> projection_of(const Rewriter& rewrite, ValueId y);

// Appends the product of x with all their weights, which become parts of one value: y[.., sum of
// outputs]. It belongs to a scope called `name` beside the first one's.
Value apply_packed(Rewriter& rewrite, std::span<const Projection> parts, std::string_view name);

}  // namespace ridge
