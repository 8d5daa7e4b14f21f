// What the tests over all operators do not show of attention: that it is the composition of the
// operators that it stands for, sizes beyond their samples, extreme scores, and its memory.

#include "ridge/ops/attention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/reduce.h"
#include "ridge/ops/rope.h"
#include "ridge/ops/softmax.h"
#include "ridge/ops/unary.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/reference.h"
#include "tests/ops/infer_message.h"
#include "tests/ops/sample_runner.h"
#include "tests/ops/types.h"

namespace ridge {
namespace {

using testing::Reals;

AttentionHeads heads_of(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t head_dim) {
  return {.n_heads = n_heads,
          .n_kv_heads = n_kv_heads,
          .head_dim = head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)))};
}

// ---- The composition it stands for

// As a model without the fused operator applies it: heads moved outwards, turned, multiplied,
// scaled, masked, normalized, multiplied, and moved back.
Value composed_attention(Value q, Value k, Value v, const AttentionHeads& heads) {
  const std::int64_t batch = q.shape()[0], seq = q.shape()[1], d = heads.head_dim;
  auto split = [&](Value x, std::int64_t n) {
    return permute(reshape(x, {batch, seq, n, d}), {0, 2, 1, 3});
  };
  q = split(q, heads.n_heads);
  k = split(k, heads.n_kv_heads);
  v = split(v, heads.n_kv_heads);
  if (heads.rope_theta != 0.0f) {
    q = rope(q, heads.rope_theta);
    k = rope(k, heads.rope_theta);
  }
  q = reshape(q, {batch, heads.n_kv_heads, heads.group() * seq, d});
  Value scores = scale(matmul(q, k, {.trans_b = true}), heads.scale);
  scores = reshape(scores, {batch, heads.n_heads, seq, seq});
  if (heads.causal) scores = causal_mask(scores);
  const Value p = reshape(softmax(scores), {batch, heads.n_kv_heads, heads.group() * seq, seq});
  const Value y = reshape(matmul(p, v), {batch, heads.n_heads, seq, d});
  return reshape(permute(y, {0, 2, 1, 3}), {batch, seq, heads.q_dim()});
}

// The result and the gradients of q, k and v, for a loss that weighs the result's elements.
std::vector<Reals> evaluate(const AttentionHeads& heads, std::int64_t batch, std::int64_t seq,
                            bool fused) {
  Graph graph;
  auto operand = [&](std::string name, std::int64_t columns) {
    return graph.state(name, f32({batch, seq, columns}), Role::parameter, Init::zeros());
  };
  const Value q = operand("q", heads.q_dim()), k = operand("k", heads.kv_dim()),
              v = operand("v", heads.kv_dim()), weights = operand("weights", heads.q_dim());
  const Value y = fused ? attention(q, k, v, heads) : composed_attention(q, k, v, heads);
  const std::vector<Value> grads =
      gradients(sum_to(mul(y, weights), {}), std::array<Value, 3>{q, k, v});
  ReferenceValues fed;
  for (const Value& x : {q, k, v, weights})
    fed[x.id] = testing::sample_values({x.type(), -2.0, 2.0}, DType::f32, x.id);
  const ReferenceValues values = evaluate_reference(graph, fed);
  return {values.at(y.id), values.at(grads[0].id), values.at(grads[1].id), values.at(grads[2].id)};
}

TEST(Attention, IsTheCompositionOfItsParts) {
  for (const bool causal : {false, true})
    for (const float theta : {0.0f, 10000.0f}) {
      AttentionHeads heads = heads_of(4, 2, 6);
      heads.causal = causal;
      heads.rope_theta = theta;
      const auto fused = evaluate(heads, 2, 7, true), composed = evaluate(heads, 2, 7, false);
      for (std::size_t i = 0; i < fused.size(); ++i) {
        SCOPED_TRACE(fmt::format("causal {}, theta {}, value {}", causal, theta, i));
        // The mask of the composition is a large negative number, so not even that is exact.
        testing::expect_close(fused[i], composed[i], {1e-12, 1e-12});
      }
    }
}

// One operand side by side, or three: the same bits.
TEST(Attention, TakesItsOperandsPackedOrNot) {
  AttentionHeads heads = heads_of(4, 2, 6);
  heads.rope_theta = 100.0f;
  const std::int64_t seq = 9, q = heads.q_dim(), kv = heads.kv_dim(), row = q + 2 * kv;
  const std::vector<TensorType> packed{f32({1, seq, row})},
      separate{f32({1, seq, q}), f32({1, seq, kv}), f32({1, seq, kv})};
  const Reals qkv = testing::sample_values({packed[0]}, DType::f32, 0);
  std::vector<Reals> parts(3);
  for (std::int64_t i = 0; i < seq * row; ++i)
    parts[i % row < q ? 0 : (i % row < q + kv ? 1 : 2)].push_back(qkv[static_cast<std::size_t>(i)]);
  CpuDevice device(1);
  const Attention op{heads};
  EXPECT_EQ(testing::run_kernel(device, op, packed, op.infer(packed), {qkv}),
            testing::run_kernel(device, op, separate, op.infer(separate), parts));
}

// ---- Large and extreme operands

// The kernels of attention and its gradient against the reference, on one thread and on three.
void expect_agreement(const AttentionHeads& heads, std::int64_t batch, std::int64_t seq,
                      double bound) {
  const std::vector<TensorType> in{f32({batch, seq, heads.q_dim() + 2 * heads.kv_dim()})};
  const std::vector<Reals> qkv{testing::sample_values({in[0], -bound, bound}, DType::f32, 0)};
  CpuDevice one(1), three(3);
  auto check = [&](const Op& op, Types types, const std::vector<Reals>& values) {
    const std::vector<TensorType> out = infer(op, types);
    const auto expected = testing::run_reference(op, types, out, values);
    const auto actual = testing::run_kernel(one, op, types, out, values);
    EXPECT_EQ(testing::run_kernel(three, op, types, out, values), actual);
    for (std::size_t o = 0; o < out.size(); ++o)
      testing::expect_close(testing::decode(actual[o], DType::f32), expected[o], {2e-5, 2e-5});
    return expected;
  };
  const auto forward = check(Attention{heads}, in, qkv);
  const TensorType y = f32({batch, seq, heads.q_dim()});
  std::vector<Reals> values{testing::sample_values({y}, DType::f32, 1), forward[0], forward[1],
                            qkv[0]};
  for (Reals& operand : values)
    for (double& x : operand) x = static_cast<float>(x);
  check(AttentionGrad{heads}, std::array{y, y, f32({batch, heads.n_heads, seq}), in[0]}, values);
}

TEST(Attention, HoldsForLongSequencesAndLargeHeads) {
  AttentionHeads heads = heads_of(1, 1, 256);
  heads.rope_theta = 10000.0f;
  expect_agreement(heads, 1, 1023, 1.0);
}

TEST(Attention, HoldsForGroupsWithoutMask) {
  AttentionHeads heads = heads_of(4, 2, 40);
  heads.causal = false;
  expect_agreement(heads, 2, 193, 1.0);
}

// Scores in the hundreds: their exponentials leave the floats, those less the maximum do not.
TEST(Attention, OverflowsNowhere) {
  AttentionHeads heads = heads_of(2, 1, 16);
  heads.scale = 40.0f;
  const std::vector<TensorType> in{f32({1, 150, 64})}, out = Attention{heads}.infer(in);
  const std::vector<Reals> qkv{testing::sample_values({in[0], -2.0, 2.0}, DType::f32, 0)};
  const auto expected = testing::run_reference(Attention{heads}, in, out, qkv);
  EXPECT_GT(*std::ranges::max_element(expected[1]), 300.0);
  CpuDevice device(1);
  const auto actual = testing::run_kernel(device, Attention{heads}, in, out, qkv);
  // A score of 800 is itself off by 5e-5, and its exponential by as much of itself.
  for (std::size_t o = 0; o < out.size(); ++o)
    testing::expect_close(testing::decode(actual[o], DType::f32), expected[o], {1e-3, 1e-6});
}

// What follows a position does not change a bit of it.
TEST(Attention, DoesNotLookAhead) {
  const std::int64_t seq = 100, changed = 70;
  const Attention op{heads_of(1, 1, 8)};
  const std::vector<TensorType> in{f32({1, seq, 24})}, out = op.infer(in);
  std::vector<Reals> qkv{testing::sample_values({in[0]}, DType::f32, 0)};
  CpuDevice device(1);
  const auto before = testing::decode(testing::run_kernel(device, op, in, out, qkv)[0], DType::f32);
  for (std::size_t i = changed * 24; i < qkv[0].size(); ++i) qkv[0][i] += 100.0;
  const auto after = testing::decode(testing::run_kernel(device, op, in, out, qkv)[0], DType::f32);
  const std::ptrdiff_t same = changed * 8;
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + same, after.begin()));
  EXPECT_NE(before[same], after[same]);
}

// ---- Memory, cost, errors

TEST(Attention, NeedsMemoryLinearInTheSequence) {
  CpuDevice device(2);
  const AttentionHeads heads = heads_of(4, 2, 32);
  auto workspace = [&](std::int64_t seq, bool gradient) {
    const TensorType y = f32({2, seq, 128}), lse = f32({2, 4, seq}), qkv = f32({2, seq, 256});
    const Op op = gradient ? Op(AttentionGrad{heads}) : Op(Attention{heads});
    const auto in = gradient ? std::vector{y, y, lse, qkv} : std::vector{qkv};
    return device.prepare(op, in, infer(op, in)).workspace;
  };
  for (const bool gradient : {false, true}) {
    const std::size_t w1 = workspace(1024, gradient), w2 = workspace(2048, gradient),
                      w4 = workspace(4096, gradient);
    EXPECT_EQ(w4 - w2, 2 * (w2 - w1));
    // A fraction of what the scores would take.
    EXPECT_LT(w4, std::size_t{2} * 4 * 4096 * 4096 * sizeof(float) / 4);
  }
}

TEST(Attention, Cost) {
  AttentionHeads heads = heads_of(4, 2, 8);
  const std::int64_t pairs = 2 * 4 * 10 * 10, causal_pairs = 2 * 4 * 55;
  const TensorType y = f32({2, 10, 32}), lse = f32({2, 4, 10}), qkv = f32({2, 10, 64});
  const Cost forward = cost(Attention{heads}, std::array{qkv}, std::array{y, lse});
  EXPECT_EQ(forward.macs, 2 * pairs * 8);
  EXPECT_EQ(forward.flops, 2 * forward.macs + 5 * pairs + 2 * 80);
  EXPECT_EQ(forward.causal_flops, forward.flops - 2 * 2 * (pairs - causal_pairs) * 8);
  const Cost backward = cost(AttentionGrad{heads}, std::array{y, y, lse, qkv}, std::array{qkv});
  EXPECT_EQ(backward.macs, 5 * pairs * 8);
  EXPECT_EQ(backward.flops, 2 * backward.macs + 5 * pairs + 2 * 640 + 2 * 10 * 48);
  heads.rope_theta = 100.0f;
  EXPECT_EQ(cost(Attention{heads}, std::array{qkv}, std::array{y, lse}).flops,
            forward.flops + 3 * 2 * 10 * 48);
  heads.causal = false;
  const Cost full = cost(Attention{heads}, std::array{qkv}, std::array{y, lse});
  EXPECT_EQ(full.causal_flops, full.flops);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const Attention op{heads_of(4, 2, 8)};
  EXPECT_THAT(message_of(op, {f32({2, 5, 60})}),
              AllOf(HasSubstr("f32[2, 5, 60]"), HasSubstr("f32[2, 5, 64]")));
  EXPECT_THAT(message_of(op, {f32({5, 64})}), HasSubstr("f32[5, 64]"));
  EXPECT_THAT(message_of(op, {f32({2, 5, 32}), f32({2, 5, 16})}), HasSubstr("3 operands, not 2"));
  EXPECT_THAT(message_of(op, {f32({2, 5, 32}), f32({2, 5, 16}), f32({2, 6, 16})}),
              HasSubstr("operand 2 is f32[2, 6, 16]"));
  EXPECT_THAT(message_of(Attention{heads_of(4, 3, 8)}, {f32({2, 5, 80})}),
              HasSubstr("4 query heads do not divide among 3"));
  AttentionHeads odd = heads_of(1, 1, 7);
  EXPECT_EQ(message_of(Attention{odd}, {f32({2, 5, 21})}), "nothing was thrown");
  odd.rope_theta = 100.0f;
  EXPECT_THAT(message_of(Attention{odd}, {f32({2, 5, 21})}), HasSubstr("head_dim of 7 is odd"));
  const AttentionGrad grad{op};
  const TensorType y = f32({2, 5, 32}), qkv = f32({2, 5, 64});
  EXPECT_THAT(message_of(grad, {y, y, f32({2, 5, 4}), qkv}), HasSubstr("f32[2, 4, 5]"));
  EXPECT_THAT(message_of(grad, {y, qkv, f32({2, 4, 5}), qkv}), HasSubstr("differ in type"));
  EXPECT_THAT(message_of(grad, {y, y, qkv}), HasSubstr("6 operands, not 3"));
}

}  // namespace
}  // namespace ridge
