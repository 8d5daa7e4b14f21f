#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = factor * x.
struct Scale {
  static constexpr std::string_view name = "scale";
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::mul";

  float factor = 1.0f;

  RIDGE_OPERATOR(Scale);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<PointwiseStep> as_step(Types in) const;
};

// The same numbers in another floating dtype, rounded to nearest even.
struct Cast {
  static constexpr std::string_view name = "cast";
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::_to_copy";

  DType to = DType::f32;

  RIDGE_OPERATOR(Cast);
  std::vector<Value> grad(GradBuilder& builder) const;
  bool is_conversion() const { return true; }
};

Value scale(Value x, float factor);
// The value itself if it has that dtype already.
Value cast(Value x, DType to);

}  // namespace ridge
