#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// What attention and its gradient have in common. Query head h reads key and value head
// h / (n_heads / n_kv_heads): grouped-query attention, and nothing is repeated for it. Queries and
// keys are rotated by the rotary embedding of ops/rope.h on their way in if `rope_theta` is not 0.
struct AttentionHeads {
  std::int64_t n_heads = 1;
  std::int64_t n_kv_heads = 1;
  std::int64_t head_dim = 1;
  float scale = 1.0f;
  bool causal = true;
  float rope_theta = 0.0f;  // 0: no rotary embedding

  std::int64_t q_dim() const { return n_heads * head_dim; }
  std::int64_t kv_dim() const { return n_kv_heads * head_dim; }
  std::int64_t group() const { return n_heads / n_kv_heads; }  // query heads of one key head
  bool operator==(const AttentionHeads&) const = default;
};

// Scaled dot product attention without the matrix of scores ("flash" attention: Dao et al., 2022).
// With H = n_heads, KV = n_kv_heads, d = head_dim:
//   s[b, h, i, j] = scale * sum_c rope(q)[b, i, h, c] * rope(k)[b, j, h KV / H, c],
//                   -infinity where causal and j > i
//   lse[b, h, i] = log sum_j exp(s[b, h, i, j])
//   y[b, i, h, c] = sum_j exp(s[b, h, i, j] - lse[b, h, i]) * v[b, j, h KV / H, c]
// Takes q[B, S, H d], k[B, S, KV d] and v[B, S, KV d], or the three side by side in one operand
// [B, S, (H + 2 KV) d]; gives y[B, S, H d] of their type and lse[B, H, S] in f32, for the gradient.
struct Attention : AttentionHeads {
  static constexpr std::string_view name = "attention";
  static constexpr WorkKind work = WorkKind::attention;
  static constexpr bool light = true;
  static constexpr bool whole_operands = true;

  RIDGE_OPERATOR(Attention);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// Takes (dy, y, lse, q, k, v) and gives dq, dk, dv, or (dy, y, lse, qkv) and gives dqkv. The scores
// are computed again, p = exp(s - lse):
//   dv[j] = sum_i p[i, j] dy[i]
//   ds[i, j] = p[i, j] * (sum_c dy[i, c] v[j, c] - sum_c dy[i, c] y[i, c])
//   drope(q)[i] = scale * sum_j ds[i, j] rope(k)[j]
//   drope(k)[j] = scale * sum_i ds[i, j] rope(q)[i]
// where i also runs over the query heads of a group.
struct AttentionGrad : AttentionHeads {
  static constexpr std::string_view name = "attention_grad";
  static constexpr WorkKind work = WorkKind::attention;
  static constexpr bool whole_operands = true;
  // Its thread blocks are no more than there are heads in the batch, and take long.
  static constexpr Footprint footprint = Footprint::few;

  // Which operand is which; of queries, keys and values side by side, q is all.
  struct Operands {
    std::size_t dy = 0, y = 1, lse = 2, q = 3, k = 4, v = 5, count = 6;
  };
  static constexpr Operands operands(std::size_t number) {
    return number == 4 ? Operands{.k = 3, .v = 3, .count = 4} : Operands{};
  }

  RIDGE_OPERATOR(AttentionGrad);
};

// Where the vector of one position and head lies in an operand of either form: position s (counted
// through the batch) and head h at element offset + s * stride + h * head_dim.
struct HeadColumns {
  std::size_t operand;  // counted from the first of q, k, v
  std::int64_t offset, stride;
};

struct AttentionLayout {
  HeadColumns q, k, v;
};

AttentionLayout attention_layout(const AttentionHeads& heads, bool packed);

Value attention(Value qkv, const AttentionHeads& heads);
Value attention(Value q, Value k, Value v, const AttentionHeads& heads);

}  // namespace ridge
