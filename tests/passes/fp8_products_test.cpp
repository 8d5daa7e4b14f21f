// Which products dtype fp8 takes to 8 bits, and that a model trains with them.

#include "ridge/passes/scaled_products.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/op.h"
#include "ridge/ops/swiglu.h"
#include "ridge/ops/unary.h"
#include "ridge/session/session.h"
#include "tests/passes/aligned_llama.h"
#include "tests/run/float8_device.h"

namespace ridge {
namespace {

using testing::aligned_llama;
using testing::nodes_of;

RunOptions options_of(const char* version, const char* dtype = "fp8") {
  RunOptions o = aligned_llama(version, dtype, 4);
  o.resolve();
  return o;
}

// Without values computed again, which are quantized again.
RunOptions kept_options_of(const char* version) {
  RunOptions o = options_of(version);
  o.disable_pass = "recompute-light";
  return o;
}

// As v4 is on a GPU, and with gradients that are summed: the products are found all the same.
TEST(Fp8ProductsOfV4, TakeThePlaceOfProductsBeforeTheyAreJoined) {
  const auto products_of = [](const std::string& enabled, std::int64_t batches) {
    RunOptions o = kept_options_of("v4");
    o.enable_pass = enabled;
    o.gradient_accumulation_steps = batches;
    Graph graph;
    build_graph(graph, o, testing::with_float8);
    for (const Node* node : nodes_of<MatMul>(graph)) EXPECT_EQ(node->inputs.size(), 2);
    return nodes_of<ScaledMatMul>(graph).size();
  };
  EXPECT_EQ(products_of("linear-swiglu", 1), products_of("", 1));
  EXPECT_EQ(products_of("", 4), products_of("", 1));
}

class Fp8Products : public ::testing::TestWithParam<const char*> {};

// Three products of each projection: 7 a block in v1, 4 where q, k, v and gate, up are one.
TEST_P(Fp8Products, TakeTheLinearLayersOfInnerBlocks) {
  Graph graph;
  build_graph(graph, kept_options_of(GetParam()), testing::with_float8);
  const bool fused = GetParam() != std::string("v1");
  const auto products = nodes_of<ScaledMatMul>(graph);
  EXPECT_EQ(products.size(), fused ? 2u * 4 * 3 : 2u * 7 * 3);
  for (const Node* node : products) {
    const std::string& scope = graph.scope_name(node->scope);
    EXPECT_TRUE(scope.starts_with("layers.1.") || scope.starts_with("layers.2.")) << scope;
    const bool forward = node->phase == Phase::forward;
    const auto& op = std::get<ScaledMatMul>(node->op->variant());
    EXPECT_EQ(op.fast_accumulation, forward);
    const auto dtype = [&](std::size_t i) { return graph.info(node->inputs[i]).type.dtype; };
    EXPECT_EQ(dtype(0), forward ? DType::f8e4m3 : DType::f8e5m2);
    EXPECT_EQ(dtype(1), DType::f8e4m3);
  }
  // What is left: the outer blocks', the output's and, without flash attention, attention's own.
  std::size_t outer = 0;
  for (const Node* node : nodes_of<MatMul>(graph)) {
    const Shape& shape = graph.info(node->inputs[0]).type.shape;
    if (shape.rank() == 2) ++outer;
  }
  EXPECT_EQ(outer, 3 + (fused ? 2u * 4 * 3 : 2u * 7 * 3));
}

// With q, k and v apart, x is quantized once all the same, and x and the weights in both layouts.
TEST_P(Fp8Products, QuantiseEachOperandOnce) {
  Graph graph;
  build_graph(graph, kept_options_of(GetParam()), testing::with_float8);
  const bool fused = GetParam() != std::string("v1");
  // Of a block: four inputs, and for each projection its weight and its gradient. Of these, with
  // gate and up packed, SwiGlu's result and gradient are computed as they are quantized.
  const auto plain = nodes_of<Quantize>(graph);
  const auto computed = nodes_of<QuantizeSwiGlu>(graph);
  EXPECT_EQ(computed.size(), fused ? 2u * 2 : 0u);
  EXPECT_EQ(plain.size() + computed.size(), 2u * (4 + 2 * (fused ? 4 : 7)));
  EXPECT_EQ(nodes_of<SwiGlu>(graph).size(), fused ? 2u : 0u) << "of the outer blocks";
  EXPECT_EQ(nodes_of<SwiGluGrad>(graph).size(), fused ? 2u : 0u);
  std::set<std::pair<ValueId, DType>> seen;
  for (const Node* node : plain) {
    const auto& op = std::get<Quantize>(node->op->variant());
    EXPECT_TRUE(seen.emplace(node->inputs[0], op.to).second);
    EXPECT_TRUE(op.plain && op.transposed);
  }
  for (const Node* node : computed) {
    const auto& op = std::get<QuantizeSwiGlu>(node->op->variant());
    EXPECT_EQ(op.gradient, node->phase == Phase::backward);
    EXPECT_EQ(op.into.to, op.gradient ? DType::f8e5m2 : DType::f8e4m3);
    EXPECT_TRUE(op.into.plain && op.into.transposed);
  }
}

TEST_P(Fp8Products, TrainAsInBf16) {
  CpuDevice cpu(2);
  testing::Float8Device device(cpu);
  Session narrow(options_of(GetParam()), device);
  Session wide(options_of(GetParam(), "bf16"), device);
  for (int step = 0; step < 12; ++step) {
    const double loss = narrow.step().loss, expected = wide.step().loss;
    EXPECT_NEAR(loss, expected, 0.03) << "step " << step;
    EXPECT_NE(loss, expected) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, Fp8Products, ::testing::Values("v1", "v2", "v3", "v4"));

// A graph with three blocks, of which only the one in the middle takes 8 bits.
struct Blocks {
  Graph graph;
  int count = 0;

  Value input(DType dtype, const Shape& shape) {
    return graph.input("x" + std::to_string(count++), {dtype, shape});
  }
  // What `make` adds, in a block of that name.
  void in_block(const char* name, const std::function<void()>& make) {
    const Scope scope(graph, name, ScopeKind::block);
    make();
  }
  // Two more around what is in the middle.
  void product_in(const char* name) {
    in_block(name, [&] { matmul(input(DType::bf16, {16, 32}), input(DType::bf16, {32, 16})); });
  }
};

TEST(Fp8ProductsOfOddGraphs, LeaveWhatTensorCoresDoNotTake) {
  Blocks b;
  b.product_in("first");
  b.in_block("inner", [&] {
    matmul(b.input(DType::f32, {16, 16}), b.input(DType::f32, {16, 16}));
    matmul(b.input(DType::bf16, {16, 24}), b.input(DType::bf16, {24, 16}));
    matmul(b.input(DType::bf16, {2, 16, 16}), b.input(DType::bf16, {2, 16, 16}));
    matmul(b.input(DType::bf16, {32, 16}), b.input(DType::bf16, {32, 16}),
           {.trans_b = true, .causal = CausalPart::output});
  });
  b.product_in("last");
  matmul(b.input(DType::bf16, {16, 32}), b.input(DType::bf16, {32, 16}));  // in no block
  EXPECT_EQ(fp8_products(b.graph), 0u) << "the outer blocks stay in 16 bits";
  Blocks c;
  for (const char* name : {"first", "inner", "last"}) c.product_in(name);
  EXPECT_EQ(fp8_products(c.graph), 1u);
}

// A value may be both sides of a product, each in its own layout.
TEST(Fp8ProductsOfOddGraphs, QuantiseAValueThatIsBothOperands) {
  Blocks b;
  b.product_in("first");
  b.in_block("inner", [&] {
    const Value x = b.input(DType::bf16, {32, 32});
    b.graph.keep(matmul(x, x, {.trans_b = true}), "y");
  });
  b.product_in("last");
  EXPECT_EQ(fp8_products(b.graph), 1u);
  const auto quantized = nodes_of<Quantize>(b.graph);
  ASSERT_EQ(quantized.size(), 1u);
  EXPECT_FALSE(std::get<Quantize>(quantized[0]->op->variant()).transposed);
}

}  // namespace
}  // namespace ridge
