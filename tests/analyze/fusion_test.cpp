#include "ridge/analyze/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/softmax.h"
#include "ridge/ops/unary.h"
#include "tests/analyze/small_training.h"

namespace ridge {
namespace {

Rewrite rewrite_named(const Graph& graph, std::string_view name) {
  const std::vector<Rewrite> all = possible_rewrites(graph);
  const auto found = std::ranges::find(all, name, &Rewrite::name);
  return found == all.end() ? Rewrite{} : *found;
}

// Sizes in bytes of the small model's tensors, all f32.
constexpr std::int64_t layers = 2, rows = 24;
constexpr std::int64_t x = 4 * rows * 24;         // [batch, seq, hidden]; also queries
constexpr std::int64_t kv = 4 * rows * 12;        // keys, values
constexpr std::int64_t t = 4 * rows * 40;         // [batch, seq, intermediate]
constexpr std::int64_t scores = 4 * 8 * 12 * 12;  // [batch, heads, seq, seq]

TEST(FusedBytes, CountsWhatComesFromOutsideAndWhatOthersUse) {
  Graph graph;
  const Value a = graph.input("a", {DType::f32, {8}});
  const Value b = scale(a, 2.0f);  // node 0
  const Value c = add(reshape(b, {2, 4}), reshape(a, {2, 4}));
  const Value d = scale(c, 3.0f);
  graph.keep(d, "d");
  std::vector<NodeId> both;
  for (NodeId n = 0; n < graph.nodes().size(); ++n)
    if (n == graph.info(b.id).producer || n == graph.info(c.id).producer) both.push_back(n);
  // Reads a once though both do, and does not write b; writes c, which the third node reads.
  EXPECT_EQ(fused_bytes(graph, both), 32 + 32);
  const std::vector<ValueId> dropped{c.id};
  EXPECT_EQ(fused_bytes(graph, both, dropped), 32);
  both.push_back(graph.info(d.id).producer);
  EXPECT_EQ(fused_bytes(graph, both), 32 + 32) << "d is kept, c is no longer used outside";
}

TEST(Rewrites, FlashAttentionMovesNoScores) {
  const SmallTraining training;
  const Rewrite flash = rewrite_named(training.graph, "flash attention");
  // Forward: product, scale, mask, softmax, product. Backward: four products, softmax, mask, scale.
  EXPECT_EQ(flash.kernels_now, layers * 12);
  EXPECT_EQ(flash.kernels_after, layers * 2);
  EXPECT_EQ(flash.bytes_now, layers * (19 * scores + 6 * (x + kv)));
  const std::int64_t forward = 2 * x + 2 * kv, backward = 3 * x + 4 * kv;
  const std::int64_t row_sums = 2 * 4 * 8 * 12, result = x;
  EXPECT_EQ(flash.bytes_after, layers * (forward + backward + row_sums + result));
  EXPECT_EQ(flash.activation_bytes, layers * scores);
  EXPECT_EQ(flash.extra_flops, layers * 2 * 8 * (12 * 13 / 2) * 6);
}

TEST(Rewrites, MergedProjectionsReadTheirInputOnce) {
  const SmallTraining training;
  const Rewrite qkv = rewrite_named(training.graph, "one product for q_proj, k_proj, v_proj");
  constexpr std::int64_t weights = 4 * 24 * (24 + 12 + 12), y = x + 2 * kv;
  EXPECT_EQ(qkv.kernels_now, layers * (3 + 3 + 2 + 3));
  EXPECT_EQ(qkv.kernels_after, layers * 3);
  EXPECT_EQ(qkv.bytes_now, layers * (3 * (3 * x + weights + y) + 2 * 3 * x));
  EXPECT_EQ(qkv.bytes_after, layers * 3 * (x + weights + y));
  const Rewrite gate_up = rewrite_named(training.graph, "one product for gate_proj, up_proj");
  EXPECT_EQ(gate_up.kernels_now, layers * (2 + 2 + 1 + 2));
  EXPECT_EQ(gate_up.kernels_after, layers * 3);
}

TEST(Rewrites, SwigluKeepsNoActivationOfItsOwn) {
  const SmallTraining training;
  const Rewrite swiglu = rewrite_named(training.graph, "SwiGLU in one kernel");
  EXPECT_EQ(swiglu.kernels_now, layers * 5);
  EXPECT_EQ(swiglu.kernels_after, layers * 2);
  EXPECT_EQ(swiglu.bytes_now, layers * 14 * t);
  EXPECT_EQ(swiglu.bytes_after, layers * 8 * t);
  EXPECT_EQ(swiglu.activation_bytes, layers * t);
}

TEST(Rewrites, ResidualsAreNormalisedAtHand) {
  const SmallTraining training;
  const Rewrite norm = rewrite_named(training.graph, "residual with norm");
  // Every norm but the first follows a sum; the last one's gradient has no other to be added to.
  EXPECT_EQ(norm.kernels_now, 4 * 2 + 3 * 2 + 1);
  EXPECT_EQ(norm.bytes_saved(), 4 * x + 3 * 2 * x);
}

TEST(Rewrites, OneOptimizerKernelMovesTheSameBytes) {
  const SmallTraining training;
  const Rewrite optimizer = rewrite_named(training.graph, "one optimizer kernel");
  EXPECT_EQ(optimizer.kernels_now, static_cast<std::int64_t>(training.training.parameters.size()));
  EXPECT_EQ(optimizer.kernels_after, 1);
  EXPECT_EQ(optimizer.bytes_saved(), 0);
}

TEST(Rewrites, ASoftmaxBetweenNoProductsIsNoAttention) {
  Graph graph;
  const Value a = graph.input("a", {DType::f32, {4, 4}});
  graph.keep(softmax(scale(a, 2.0f)), "y");
  EXPECT_TRUE(possible_rewrites(graph).empty());
}

TEST(Rewrites, OfBf16FindTheSamePlaces) {
  const SmallTraining f32, bf16(DType::bf16);
  for (const char* name : {"flash attention", "one product for q_proj, k_proj, v_proj",
                           "SwiGLU in one kernel", "residual with norm"}) {
    const Rewrite a = rewrite_named(f32.graph, name), b = rewrite_named(bf16.graph, name);
    EXPECT_GT(b.bytes_saved(), 0) << name;
    EXPECT_EQ(a.kernels_after, b.kernels_after) << name;
  }
}

TEST(KeptForBackward, IsWhatGradientsReadOfTheForwardPass) {
  Graph graph;
  const Value w = graph.parameter("w", {4}, Init::ones());
  const Value a = scale(w, 2.0f);  // its gradient needs nothing
  const Value b = mul(a, a);       // needs a
  const Value in = reshape(b, {2, 2});
  PhaseScope phase(graph, Phase::backward);
  scale(a, 1.0f);
  scale(in, 1.0f);
  scale(w, 1.0f);
  EXPECT_EQ(kept_for_backward(graph), (std::vector<ValueId>{a.id, b.id}));
}

}  // namespace
}  // namespace ridge
