#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = factor * x.
struct Scale {
  static constexpr std::string_view name = "scale";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::mul";

  float factor = 1.0f;

  RIDGE_OPERATOR(Scale);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// The same numbers in another floating dtype, rounded to nearest even.
struct Cast {
  static constexpr std::string_view name = "cast";
  static constexpr DTypes dtypes = f32_and_16_bit;
  static constexpr WorkKind work = WorkKind::elements;
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::_to_copy";

  DType to = DType::f32;

  RIDGE_OPERATOR(Cast);
  std::vector<Value> grad(GradBuilder& builder) const;
};

Value scale(Value x, float factor);
// The value itself if it has that dtype already.
Value cast(Value x, DType to);

}  // namespace ridge
