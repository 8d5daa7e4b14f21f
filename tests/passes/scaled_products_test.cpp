// Which products dtype tf32 takes to scaled f16, and that a model trains with them as without.

#include "ridge/passes/scaled_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/op.h"
#include "ridge/session/session.h"
#include "tests/passes/aligned_llama.h"

namespace ridge {
namespace {

using testing::aligned_llama;
using testing::nodes_of;

RunOptions options_of(const std::string& version, const char* dtype = "tf32") {
  RunOptions o = aligned_llama(version, dtype, 3);
  o.enable_pass = "scaled-products";  // a CPU has it only when asked
  o.resolve();
  return o;
}

// What a value was before it was reshaped.
ValueId root_of(const Graph& graph, ValueId v) {
  for (const Node* node : nodes_of<Reshape>(graph))
    if (node->outputs[0] == v) return root_of(graph, node->inputs[0]);
  return v;
}

TEST(ScaledProductsPass, IsV4sOnAGpuInTf32) {
  const auto has = [](const char* version, const char* dtype, const std::string& device,
                      const char* enable = "") {
    RunOptions o;
    o.version = version, o.dtype = dtype, o.enable_pass = enable;
    const DeviceKind kind = device == "cuda" ? DeviceKind::gpu : DeviceKind::cpu;
    return o.schedule({.kind = kind, .multiplies_float8 = true}).has(scaled_products);
  };
  EXPECT_TRUE(has("v4", "tf32", "cuda"));
  EXPECT_FALSE(has("v4", "tf32", "cpu"));
  EXPECT_FALSE(has("v3", "tf32", "cuda"));
  EXPECT_TRUE(has("v3", "tf32", "cuda", "scaled-products"));
  for (const char* dtype : {"fp32", "bf16", "fp16", "fp8"}) {
    EXPECT_FALSE(has("v4", dtype, "cuda")) << dtype;
    EXPECT_FALSE(has("v4", dtype, "cuda", "scaled-products")) << dtype;
  }
}

class ScaledProducts : public ::testing::TestWithParam<const char*> {};

// All but attention's own: 7 projections a block in v1, 4 where q, k, v and gate, up are one; and
// the output. In f16, with the layouts of the products whose place they take.
TEST_P(ScaledProducts, TakeAllLinearLayers) {
  Graph graph;
  build_graph(graph, options_of(GetParam()));
  const bool fused = GetParam() != std::string("v1");
  const auto products = nodes_of<ScaledMatMul>(graph);
  EXPECT_EQ(products.size(), 3u * (3 * (fused ? 4 : 7) + 1));
  for (const Node* node : products) {
    const auto& op = std::get<ScaledMatMul>(node->op->variant());
    EXPECT_EQ(op.out, DType::f32);
    EXPECT_EQ(op.trans_b, node->phase == Phase::forward);
    for (const std::size_t i : {0, 1})
      EXPECT_EQ(graph.info(node->inputs[i]).type.dtype, DType::f16);
  }
  for (const Node* node : nodes_of<MatMul>(graph))
    EXPECT_GT(graph.info(node->inputs[0]).type.shape.rank(), 2) << "not attention's";
}

// Weights, activations and gradients: one each, for all the products that read them; but
// activations that the backward pass reads as they are again there.
TEST_P(ScaledProducts, QuantiseEachOperandOnceAPass) {
  RunOptions options = options_of(GetParam());
  options.disable_pass = "recompute-light";  // what is computed again is quantized again
  Graph graph;
  build_graph(graph, options);
  const bool fused = GetParam() != std::string("v1");
  const auto gates = nodes_of<QuantizeSwiGlu>(graph);
  EXPECT_EQ(gates.size(), fused ? 2u * 3 : 0u);
  std::set<ValueId> seen;
  for (const Node* node : nodes_of<Quantize>(graph)) {
    const ValueId x = root_of(graph, node->inputs[0]);
    if (seen.insert(x).second) continue;
    EXPECT_EQ(node->phase, Phase::backward);
    const auto reads_it = [&](const Node& other) {
      return other.phase == Phase::backward && std::ranges::count(other.inputs, x) > 0 &&
             !std::holds_alternative<Quantize>(other.op->variant());
    };
    EXPECT_TRUE(std::ranges::any_of(graph.nodes(), reads_it)) << graph.info(x).name;
  }
  EXPECT_EQ(seen.size() + gates.size(), 3u * (4 + 2 * (fused ? 4 : 7)) + 3);
}

// Nor is SwiGLU's result, which its gradient gives again.
TEST_P(ScaledProducts, KeepNoResultsOfGates) {
  RunOptions options = options_of(GetParam());
  options.disable_pass = "recompute-light";
  Graph graph;
  build_graph(graph, options);
  std::set<ValueId> results, again;
  for (const Node* node : nodes_of<QuantizeSwiGlu>(graph)) {
    const bool gradient = std::get<QuantizeSwiGlu>(node->op->variant()).gradient;
    EXPECT_EQ(node->inputs.size(), gradient ? 3u : 1u);
    (gradient ? again : results).insert(node->outputs.back());
  }
  for (const Node* node : nodes_of<ScaledMatMul>(graph))
    EXPECT_FALSE(node->phase == Phase::backward && results.contains(node->inputs[1]));
  EXPECT_EQ(results.size(), again.size());
}

TEST_P(ScaledProducts, KeepSumsOverBatchesInTheProducts) {
  RunOptions options = options_of(GetParam());
  options.gradient_accumulation_steps = 4;
  Graph graph;
  build_graph(graph, options);
  std::size_t sums = 0;
  for (const Node* node : nodes_of<ScaledMatMul>(graph)) sums += node->inputs.size() == 5;
  EXPECT_EQ(sums, GetParam() == std::string("v4") ? 3u * 4 + 1 : 0u);
}

// tf32 rounds operands to 11 bits; the CPU's fp32 does not. Adam's first steps make much of the
// difference: the limit is four times what it was.
TEST_P(ScaledProducts, TrainAsInFp32) {
  for (const bool tied : {false, true}) {
    RunOptions narrow = options_of(GetParam());
    narrow.tie_embeddings = tied;
    narrow.max_grad_norm = 0.5;
    narrow.gradient_accumulation_steps = tied ? 2 : 1;
    RunOptions wide = narrow;
    wide.enable_pass = "";
    CpuDevice device(2);
    Session a(narrow, device), b(wide, device);
    double most = 0;
    for (int step = 0; step < 10; ++step)
      most = std::max(most, std::abs(a.step().loss - b.step().loss));
    EXPECT_LT(most, 2e-3);
    EXPECT_GT(most, 0);
    EXPECT_NEAR(a.evaluate(2).loss, b.evaluate(2).loss, 2e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, ScaledProducts, ::testing::Values("v1", "v2", "v3", "v4"));

TEST(ScaledProductsOfOddGraphs, LeaveWhatTensorCoresDoNotTake) {
  Graph graph;
  int count = 0;
  const auto input = [&](DType dtype, const Shape& shape) {
    return graph.input("x" + std::to_string(count++), {dtype, shape});
  };
  matmul(input(DType::bf16, {16, 16}), input(DType::bf16, {16, 16}));
  matmul(input(DType::f32, {16, 12}), input(DType::f32, {12, 16}));
  matmul(input(DType::f32, {16, 16}), input(DType::f32, {16, 12}));
  matmul(input(DType::f32, {2, 16, 16}), input(DType::f32, {2, 16, 16}));
  EXPECT_EQ(f16_products(graph), 0u);
  // Only rows have to be whole.
  matmul(input(DType::f32, {13, 24}), input(DType::f32, {7, 24}), {.trans_b = true});
  EXPECT_EQ(f16_products(graph), 1u);
}

}  // namespace
}  // namespace ridge
