#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y = silu(gate) * up (Shazeer, 2020). Takes (gate, up) of one type, or (packed) alone: gate[.., I]
// and up[.., I] side by side in packed[.., 2 I], gate first.
struct SwiGlu {
  static constexpr std::string_view name = "swiglu";
  static constexpr bool light = true;

  RIDGE_OPERATOR(SwiGlu);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// Takes (dy, gate, up) and gives (dgate, dup), or takes (dy, packed) and gives dpacked, with
// `in_place` in the memory of packed, which nothing may need any more:
//   dgate = dy * up * (s + silu(gate) * (1 - s)) with s = sigmoid(gate);  dup = dy * silu(gate)
// With `result` the last output is y = silu(gate) * up once more, in the memory of dy.
struct SwiGluGrad {
  static constexpr std::string_view name = "swiglu_grad";

  bool in_place = false;
  bool result = false;

  // Which operand is which; of gate and up side by side, gate is both.
  struct Operands {
    std::size_t dy = 0, gate = 1, up, count;
  };
  static constexpr Operands operands(std::size_t number) {
    return number == 2 ? Operands{.up = 1, .count = 2} : Operands{.up = 2, .count = 3};
  }

  RIDGE_OPERATOR(SwiGluGrad);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
};

Value swiglu(Value gate, Value up);
Value swiglu(Value packed);

}  // namespace ridge
