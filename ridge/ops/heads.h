#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// How the queries, keys and values of attention lie side by side in one row per token: n_heads
// heads of queries, n_kv_heads of keys, n_kv_heads of values, each head_dim elements.
struct HeadLayout {
  std::int64_t n_heads = 1;
  std::int64_t n_kv_heads = 1;
  std::int64_t head_dim = 1;
  float rope_theta = 0.0f;  // of the rotary embedding of q and k (see Rope); 0: none

  std::int64_t columns() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
  bool operator==(const HeadLayout&) const = default;
};

// Takes packed[B, S, (H + 2 KV) D] and gives q[B, H, S, D], k[B, KV, S, D] and v[B, KV, S, D], with
// q and k rotated by the rotary embedding. All three have gradients.
struct SplitHeads {
  static constexpr std::string_view name = "split_heads";
  static constexpr std::size_t differentiable_outputs = 3;

  HeadLayout layout;

  RIDGE_OPERATOR(SplitHeads);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// The inverse of SplitHeads, and its gradient: takes (q, k, v) and gives packed, with q and k
// rotated back.
struct MergeHeads {
  static constexpr std::string_view name = "merge_heads";

  HeadLayout layout;

  RIDGE_OPERATOR(MergeHeads);
};

}  // namespace ridge
