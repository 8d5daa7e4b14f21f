#pragma once

#include "ridge/ops/activation.h"
#include "ridge/ops/conv.h"
#include "ridge/ops/operator.h"

namespace ridge {

// Weights of channels from their means, by squeeze and excitation (Hu et al., 2018): two small
// products in one kernel,
//   y[n, c] = gate(b2[c] + sum_s w2[s, c] * inner(b1[s] + sum_k w1[s, k] * x[n, k])),
// all sums in f32 and what is between them never rounded. Takes x[N, C], w1[S, C], b1[S], w2[S, C]
// and b2[C] of one dtype and gives y[N, C] of it. `inner` is relu or silu, `gate` sigmoid or
// hard_sigmoid. It has no gradient.
struct SqueezeExcitation {
  static constexpr std::string_view name = "squeeze_excitation";
  static constexpr WorkKind work = WorkKind::product;

  static constexpr std::int64_t most_channels = 8192;

  Epilogue inner = Epilogue::relu;
  ActivationKind gate = ActivationKind::sigmoid;

  // Which operand is which.
  struct Operands {
    std::size_t x = 0, w1 = 1, b1 = 2, w2 = 3, b2 = 4, count = 5;
  };
  static constexpr Operands operands() { return {}; }

  RIDGE_OPERATOR(SqueezeExcitation);
};

}  // namespace ridge
