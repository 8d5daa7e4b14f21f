#pragma once

#include <optional>

#include "ridge/ops/operator.h"

namespace ridge {

// Which part of a product a causal mask leaves necessary, when rows are query positions and columns
// key positions. Kernels may use it and may ignore it; costs count it.
enum class CausalPart : std::uint8_t {
  none,
  output,  // only output[.., i, j] with j <= i mod n is used: scores = q k^T
  lhs,     // the left operand is 0 where its key position is beyond its query position
};

// c[.., m, n] = a[.., m, k] b[.., k, n], with a stored as [.., k, m] if trans_a and b as [.., n, k]
// if trans_b. Leading dimensions are a batch and must be equal. Accumulates in f32; what is wanted
// in `out` was never rounded to anything less. Takes (a, b), or (a, b, sum) with sum of c's type,
// which must be f32: c = sum + a b in the memory of sum.
struct MatMul {
  static constexpr std::string_view name = "matmul";
  static constexpr WorkKind work = WorkKind::product;

  bool trans_a = false;
  bool trans_b = false;
  CausalPart causal = CausalPart::none;
  std::optional<DType> out{};  // f32, or that of the operands; if nothing is given, the latter

  // Which operand is which; a sum that is not there is past the end.
  struct Operands {
    std::size_t a = 0, b = 1, sum = 2, count;
  };
  static constexpr Operands operands(std::size_t number) {
    return {.count = number == 3 ? 3u : 2u};
  }

  RIDGE_OPERATOR(MatMul);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  std::string_view aten_name(Types in) const;
  bool by_rows(Types in) const;  // a plain product of two matrices
};

Value matmul(Value a, Value b, MatMul op = {});

// y[.., out] = x[.., in] weight[out, in]^T: a projection of the last dimension, a MatMul between
// two reshapes. (The operator Linear, in ops/linear.h, is what a pass makes of one and what follows
// it.)
Value project(Value x, Value weight);

}  // namespace ridge
