#pragma once

#include "ridge/ops/epilogue.h"
#include "ridge/ops/operator.h"

namespace ridge {

// A dense layer with what follows it: takes x[.., k] and weight[n, k]; then, if `bias`, bias[n] in
// the type of x, and, if `residual`, a tensor of the result's type; gives
//   y[.., j] = epilogue(sum over l of x[.., l] * weight[j, l] + bias[j] + residual[.., j])
// of x's type, accumulated in f32. It has no gradient: the pass linear-epilogues puts it where
// nobody reads what lies between, forward and backward.
struct Linear {
  static constexpr std::string_view name = "linear";
  static constexpr WorkKind work = WorkKind::product;

  bool bias = false;
  bool residual = false;
  Epilogue epilogue = Epilogue::none;

  using Operands = LayerOperands;
  constexpr Operands operands() const { return {bias, residual}; }

  RIDGE_OPERATOR(Linear);
  int roundings() const { return 2; }  // its sums too, where another kernel adds the rest
  std::string_view aten_name(Types in) const;
};

// The layer's extents: its product is of [m, k] and [k, n].
struct LinearExtents {
  std::int64_t m, n, k;
};
LinearExtents linear_extents(Types in);

}  // namespace ridge
