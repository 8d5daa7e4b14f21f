#pragma once

// How models cut rows into attention heads: [B, S, heads * d] is reshaped to [B, S, heads, d] and
// permuted to [B, heads, S, d], and back the same way.

#include <array>
#include <optional>

#include "ridge/passes/rewrite.h"

namespace ridge {

inline constexpr std::array<std::uint8_t, Shape::max_rank> swap_middle{0, 2, 1, 3};

// The rows that the heads were cut from, if they were cut from any.
inline std::optional<ValueId> rows_of_heads(const Rewriter& rewrite, ValueId heads) {
  const NodeId permute = rewrite.producer<Permute>(heads);
  if (permute == no_node || rewrite.op<Permute>(permute)->order != swap_middle) return std::nullopt;
  const NodeId cut = rewrite.producer<Reshape>(rewrite.node(permute).inputs[0]);
  if (cut == no_node) return std::nullopt;
  const ValueId rows = rewrite.node(cut).inputs[0];
  const Shape& s = rewrite.type(heads).shape;
  return rewrite.type(rows).shape == Shape{s[0], s[2], s[1] * s[3]} ? std::optional(rows)
                                                                    : std::nullopt;
}

}  // namespace ridge
