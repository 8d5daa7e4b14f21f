#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// The sum over the dimensions along which `shape` broadcasts to the operand's shape: the gradient
// of a broadcast. Accumulates in f32.
struct SumTo {
  static constexpr std::string_view name = "sum_to";
  static constexpr std::string_view aten = "aten::sum";

  Shape shape;

  RIDGE_OPERATOR(SumTo);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// The value itself if it has that shape already.
Value sum_to(Value x, const Shape& shape);

}  // namespace ridge
