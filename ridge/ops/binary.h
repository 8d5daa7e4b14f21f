#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// c = a + b with NumPy broadcasting; one dtype.
struct Add {
  static constexpr std::string_view name = "add";
  static constexpr bool elementwise = true;
  static constexpr std::string_view aten = "aten::add";

  RIDGE_OPERATOR(Add);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<PointwiseStep> as_step(Types in) const;
};

// c = a * b with NumPy broadcasting; one dtype.
struct Mul {
  static constexpr std::string_view name = "mul";
  static constexpr bool elementwise = true;
  static constexpr bool light = true;
  static constexpr std::string_view aten = "aten::mul";

  RIDGE_OPERATOR(Mul);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<PointwiseStep> as_step(Types in) const;
};

// The arithmetic that tensor libraries have beside these, and networks here have no need of.
enum class ArithmeticKind : std::uint8_t { sub, div, equal };
std::string_view name_of(ArithmeticKind kind);  // "sub"

// c = a - b, a / b, or 1 where a == b and 0 elsewhere, with NumPy broadcasting; one dtype.
struct Arithmetic {
  static constexpr std::string_view name = "arithmetic";
  static constexpr bool elementwise = true;

  ArithmeticKind kind = ArithmeticKind::sub;

  RIDGE_OPERATOR(Arithmetic);
  std::string_view aten_name(Types in) const;
};

// Where the element of an operand is that an element of the result, counted in row-major order,
// comes from.
std::int64_t broadcast_source(const Shape& operand, const Shape& result, std::int64_t index);

Value add(Value a, Value b);
Value mul(Value a, Value b);

}  // namespace ridge
