#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// The feed-forward's first half: takes (x[m, k], weight[2 I, k]) and gives (packed[m, 2 I],
// y[m, I]), with packed = x weight^T, gate and up side by side, and y = silu(gate) * up.
struct LinearSwiGlu {
  static constexpr std::string_view name = "linear_swiglu";
  static constexpr WorkKind work = WorkKind::product;
  static constexpr bool whole_operands = true;

  RIDGE_OPERATOR(LinearSwiGlu);
  int roundings() const { return 2; }  // gate and up too
};

// SwiGluGrad of a product: takes (g[m, k], weight[k, I], packed[m, 2 I]) and gives dpacked[m, 2 I],
// SwiGluGrad's of dy = g weight and packed; with `in_place` in the memory of packed. With `result`
// the second output is y[m, I] = silu(gate) * up once more.
struct LinearSwiGluGrad {
  static constexpr std::string_view name = "linear_swiglu_grad";
  static constexpr WorkKind work = WorkKind::product;
  static constexpr bool whole_operands = true;

  bool in_place = false;
  bool result = false;

  // Which operand is which: first those of the product, then that of the gate.
  struct Operands {
    std::size_t g = 0, weight = 1, packed = 2, count = 3;
  };
  static constexpr Operands operands() { return {}; }

  RIDGE_OPERATOR(LinearSwiGluGrad);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

}  // namespace ridge
