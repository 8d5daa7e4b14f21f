#pragma once

#include <array>
#include <optional>

#include "ridge/ops/operator.h"

namespace ridge {

// The same elements under another shape. Free: the result shares the operand's memory.
struct Reshape {
  static constexpr std::string_view name = "reshape";
  static constexpr DTypes dtypes = f32_16_bit_and_s8;
  static constexpr WorkKind work = WorkKind::renaming;
  static constexpr std::string_view aten = "aten::view";

  Shape shape;

  RIDGE_OPERATOR(Reshape);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

// Rows [begin, begin + rows) of dimension 0. Free: the result lies in the operand's memory. It has
// no gradient rule; it takes apart gradients and results, not what is differentiated.
struct Slice {
  static constexpr std::string_view name = "slice";
  static constexpr WorkKind work = WorkKind::renaming;
  static constexpr std::string_view aten = "aten::slice";

  std::int64_t begin = 0;
  std::int64_t rows = 0;

  RIDGE_OPERATOR(Slice);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

// Moves data so that dimension i of the result is dimension order[i] of the operand; into another
// floating dtype, rounded to nearest even, if `to` is one.
struct Permute {
  static constexpr std::string_view name = "permute";

  // Only the first rank() entries count; the others are 0.
  std::array<std::uint8_t, Shape::max_rank> order{};
  std::optional<DType> to{};

  RIDGE_OPERATOR(Permute);
  std::vector<Value> grad(GradBuilder& builder) const;
  bool is_conversion() const;  // of an image with channels first to one with channels last
};

// The value itself if it has that shape already.
Value reshape(Value x, const Shape& shape);
Value slice(Value x, std::int64_t begin, std::int64_t rows);
Value permute(Value x, std::array<std::uint8_t, Shape::max_rank> order,
              std::optional<DType> to = {});

}  // namespace ridge
