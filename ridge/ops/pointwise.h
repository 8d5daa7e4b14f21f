#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridge/ops/operator.h"

namespace ridge {

// A chain of elementwise operators in one pass: a straight-line program over registers that hold
// one element each. The first registers are the operands, which broadcast as NumPy has it, and each
// step adds one. All in f32: what was a tensor of 16 bits between two operators is not rounded any
// more, and a Cast is no step but the dtype of an operand or a result. Has no gradient, being made
// from a graph that has them already.
struct Pointwise {
  static constexpr std::string_view name = "pointwise";
  static constexpr bool elementwise = true;

  using Step = PointwiseStep;
  using Code = Step::Code;
  struct Result {
    std::uint16_t value = 0;  // a register
    DType dtype = DType::f32;
    bool operator==(const Result&) const = default;
  };

  std::vector<Step> steps;
  std::vector<Result> results;

  // Takes one or more tensors; gives one of the shape that they broadcast to for each result.
  RIDGE_OPERATOR(Pointwise);
};

// The step that computes what an operator does of these operands, its registers left open; none if
// it is no step of a chain.
std::optional<PointwiseStep> as_step(const Op& op, Types in);
// How many operands a step takes: 1 or 2.
int operand_count(Pointwise::Code code);
// "add", "silu_grad", "hard_swish".
std::string name_of(const Pointwise::Step& step);

// How operands that broadcast lie under the elements of the results: in the fewest loops, outermost
// first, in each of which an operand either moves along, densely, or stands still.
struct BroadcastLoops {
  std::vector<std::int64_t> extents;
  std::vector<std::vector<bool>> moves;  // by operand, then loop

  BroadcastLoops(const Shape& shape, Types in);
  bool is_whole(std::size_t operand) const;  // it has every element of the results' shape
};

}  // namespace ridge
