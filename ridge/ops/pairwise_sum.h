#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// Adds tensors that come one in each call, in the order of a binary tree: of eight, ((0 + 1) + (2 +
// 3)) + ((4 + 5) + (6 + 7)). Whoever has a part of the tree computes a part of the same sum, to the
// bit. With `run` above 1 a leaf of the tree is the sum of so many tensors in a row.
//
// Takes number[] in i32, which counts the calls from 0, or goes on from any multiple of as many as
// there are in a sum; x; and f32 tensors of its type, which hold from call to call what is not
// added yet. There is one for each level of the tree, and, with `run` above 1, one more. The
// outputs are these, in place; after the last call of a sum the last of them is the sum. What they
// held before the first does not matter.
struct PairwiseSum {
  static constexpr std::string_view name = "pairwise_sum";
  static constexpr DTypes dtypes = f32_only;
  static constexpr bool partial = true;
  static constexpr std::uint32_t most_levels = 16;

  std::int64_t run = 1;

  RIDGE_OPERATOR(PairwiseSum);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;

  // The depth of the tree, and the calls of a sum, for so many tensors that hold sums.
  constexpr std::uint32_t levels(std::size_t sums) const {
    return static_cast<std::uint32_t>(sums) - (run > 1 ? 1 : 0);
  }
  constexpr std::int64_t calls(std::size_t sums) const { return run << levels(sums); }
};

// The work of one call: s = x; with `adds_to_chain`, s += the last tensor, which holds the
// beginning of the leaf; s += each of the first `carries` tensors; tensor `to` = s.
struct PairwiseStep {
  bool adds_to_chain = false;
  std::uint32_t carries = 0;
  std::uint32_t to = 0;

  constexpr PairwiseStep(const PairwiseSum& op, std::uint32_t sums, std::int64_t number) {
    const std::uint32_t levels = op.levels(sums);
    const std::int64_t call = number % op.calls(sums), leaf = call / op.run;
    const std::int64_t place = call % op.run;
    adds_to_chain = place > 0;
    to = sums - 1;
    if (place + 1 < op.run) return;
    while (carries < levels && (leaf >> carries & 1) != 0) ++carries;
    if (carries < levels) to = carries;
  }
};

}  // namespace ridge
