#pragma once

#include <vector>

#include "ridge/ops/operator.h"

namespace ridge {

// How the operators below move data: the result is a matrix whose rows each consist of pieces of
// rows of the operands, or of zeros.
struct JoinPlan {
  struct Piece {
    std::int64_t columns = 0;
    int operand = -1;             // none: zeros
    std::int64_t begin = 0;       // the operand's first column that is copied
    std::int64_t row_stride = 0;  // of the operand
  };
  std::int64_t rows = 1, columns = 0;
  std::vector<Piece> pieces;  // from left to right
};

// The operands one after another along dimension `dim`; all other extents are equal.
struct Concat {
  static constexpr std::string_view name = "concat";
  static constexpr DTypes dtypes = f32_16_bit_and_s8;
  static constexpr std::string_view aten = "aten::cat";

  std::uint32_t dim = 0;

  RIDGE_OPERATOR(Concat);
  std::vector<Value> grad(GradBuilder& builder) const;

  JoinPlan plan(Types in) const;
};

// Elements [begin, begin + extent) along dimension `dim`, copied. Where begin + extent passes an
// end of the operand, or begin is below 0, the rest is zero: so its gradient is a window too, and
// padding is one.
struct Window {
  static constexpr std::string_view name = "window";
  static constexpr bool partial = true;  // what lies inside the operand

  std::uint32_t dim = 0;
  std::int64_t begin = 0;
  std::int64_t extent = 1;

  RIDGE_OPERATOR(Window);
  std::vector<Value> grad(GradBuilder& builder) const;

  JoinPlan plan(Types in) const;
};

// y[.., i, ..] = x[.., (i - shift) mod extent, ..] along dimension `dim`.
struct Roll {
  static constexpr std::string_view name = "roll";
  static constexpr std::string_view aten = "aten::roll";

  std::uint32_t dim = 0;
  std::int64_t shift = 0;

  RIDGE_OPERATOR(Roll);
  std::vector<Value> grad(GradBuilder& builder) const;

  JoinPlan plan(Types in) const;
};

Value concat(std::span<const Value> parts, std::uint32_t dim);
Value window(Value x, std::uint32_t dim, std::int64_t begin, std::int64_t extent);
Value roll(Value x, std::uint32_t dim, std::int64_t shift);

}  // namespace ridge
