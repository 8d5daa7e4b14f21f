#pragma once

#include "ridge/ops/conv.h"
#include "ridge/ops/operator.h"

namespace ridge {

// What a residual network's bottleneck does behind its reduction, with relu after each step:
//   y = relu(b2 + residual + expansion of relu(b1 + convolution of x)),
// where the expansion is 1 x 1 and what it expands is never stored. The residual is an operand; or,
// if `projects`, as at the beginning of a stage, bp + projection of x0, 1 x 1 at the steps of the
// convolution. If `reduces`, there is the 1 x 1 reduction too that the next bottleneck begins with,
// r = relu(b3 + reduction of y).
//
// Takes x, w1[C, R, S, I], b1[C], w2[O, 1, 1, C], b2[O]; then a residual of y's type, or x0,
// wp[O, 1, 1, J] and bp[O]; and then, if it reduces, w3[P, 1, 1, O] and b3[P]. With channels first
// the weights are [C, I, R, S] and so on. Gives y, and then r. All sums are f32. It has no
// gradient.
struct ResidualBottleneck : ConvGeometry {
  static constexpr std::string_view name = "residual_bottleneck";
  static constexpr WorkKind work = WorkKind::convolution;

  bool projects = false, reduces = false;

  // Which operand is which: the weight and the bias of each convolution, and the residual or, if it
  // is projected, what it is projected from. What is not there is past the end.
  struct Operands {
    std::size_t x = 0, w1 = 1, b1 = 2, w2 = 3, b2 = 4, residual = 5, wp, bp, w3, b3, count;
  };
  constexpr Operands operands() const {
    const std::size_t reduction = projects ? 8 : 6, end = reduction + (reduces ? 2 : 0);
    return {.wp = projects ? 6 : end,
            .bp = projects ? 7 : end,
            .w3 = reduces ? reduction : end,
            .b3 = reduces ? reduction + 1 : end,
            .count = end};
  }

  RIDGE_OPERATOR(ResidualBottleneck);
  int roundings() const { return 2; }  // what one convolution hands to the next
};

}  // namespace ridge
