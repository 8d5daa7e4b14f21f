#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// A tensor of one value, from no operand.
struct Fill {
  static constexpr std::string_view name = "fill";
  static constexpr std::string_view aten = "aten::full";

  TensorType type;
  float value = 0.0f;

  RIDGE_OPERATOR(Fill);
};

Value fill(Graph& graph, const TensorType& type, float value);

}  // namespace ridge
