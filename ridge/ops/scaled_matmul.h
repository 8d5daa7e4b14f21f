#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// c[.., m, n] = scale_a scale_b a b of operands as Quantize gives them, with a stored as [.., m,
// k], or [.., k, m] if trans_a, and b as [.., n, k], or [.., k, n] unless trans_b. Takes (a, b,
// scale_a, scale_b), or (a, b, scale_a, scale_b, sum) with an f32 sum of c's type: c = sum +
// scale_a scale_b a b in the memory of sum. Scales are f32 scalars. The operands are
// - both f16, in any layout; c is f32; or
// - of f8e4m3 or f8e5m2, though not both of the latter, which tensor cores do not multiply. Those
//   take 8 bits only with the summed dimension innermost: trans_a and not trans_b is refused.
// Accumulates in f32.
struct ScaledMatMul {
  static constexpr std::string_view name = "scaled_matmul";
  static constexpr DTypes dtypes = f32_only;  // of the scales
  static constexpr WorkKind work = WorkKind::product;
  static constexpr bool whole_operands = true;

  DType out = DType::bf16;  // or f32
  bool trans_a = false;
  bool trans_b = true;
  // For 8-bit operands: whether sums may keep only the digits of the tensor core's registers
  // (14 bits on sm90), rather than being added up in f32 every so often.
  bool fast_accumulation = false;

  // Which operand is which; a sum that is not there is past the end.
  struct Operands {
    std::size_t a = 0, b = 1, scale_a = 2, scale_b = 3, sum = 4, count;
  };
  static constexpr Operands operands(std::size_t number) {
    return {.count = number == 5 ? 5u : 4u};
  }

  RIDGE_OPERATOR(ScaledMatMul);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;

  // What GPUs want of every extent of a product of 8 bits, and of the rows of one of f16, in
  // elements.
  static constexpr std::int64_t extent_multiple = 16;
  static constexpr std::int64_t row_multiple = 8;
};

}  // namespace ridge
