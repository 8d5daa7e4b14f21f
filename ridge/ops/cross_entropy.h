#pragma once

#include <algorithm>
#include <limits>

#include "ridge/ops/operator.h"

namespace ridge {

// The mean of -log softmax(logits)[row, target[row]] over all rows. Takes logits[.., V] and i32
// targets[..] in [0, V); gives the loss, a scalar in f32, and lse[..] = log(sum(exp(logits))) in
// f32, for the gradient. Sums in f32 per row and in f64 over rows. Where `classes` is below V, only
// the first so many columns are logits; those behind them fill the row up and do not count.
struct CrossEntropy {
  static constexpr std::string_view name = "cross_entropy";
  static constexpr std::string_view aten = "aten::cross_entropy_loss";

  std::int64_t classes = std::numeric_limits<std::int64_t>::max();  // all columns

  RIDGE_OPERATOR(CrossEntropy);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::int64_t id_range(Types in) const { return std::min(classes, in[0].shape[-1]); }
};

// Takes (dloss, logits, targets, lse) and gives dlogits = dloss / rows * (exp(logits - lse) -
// onehot(target)), and 0 behind the first `classes` columns. With `in_place` that is the memory of
// logits, which nothing may need any more.
struct CrossEntropyGrad {
  static constexpr std::string_view name = "cross_entropy_grad";

  bool in_place = false;
  std::int64_t classes = std::numeric_limits<std::int64_t>::max();  // all columns

  // Which operand is which.
  struct Operands {
    std::size_t dloss = 0, logits = 1, targets = 2, lse = 3, count = 4;
  };
  static constexpr Operands operands() { return {}; }

  RIDGE_OPERATOR(CrossEntropyGrad);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  std::int64_t id_range(Types in) const {
    return std::min(classes, in[operands().logits].shape[-1]);
  }
};

// The scalar loss.
Value cross_entropy(Value logits, Value targets);

}  // namespace ridge
