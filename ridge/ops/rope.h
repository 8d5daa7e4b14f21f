#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// Rotary position embedding (Su et al., 2021) over consecutive pairs: x[.., S, D] with D even; the
// pair (x[s, 2i], x[s, 2i+1]) is rotated by s * theta^(-2i/D), backwards if `inverse`.
// Position s is the index along the second to last dimension. The gradient is the inverse rotation.
struct Rope {
  static constexpr std::string_view name = "rope";

  float theta = 10000.0f;
  bool inverse = false;

  RIDGE_OPERATOR(Rope);
  std::vector<Value> grad(GradBuilder& builder) const;
};

Value rope(Value x, float theta);

}  // namespace ridge
