#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/passes/passes.h"
#include "ridge/run/reference.h"

namespace ridge {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

struct Layer {
  ConvGeometry geometry{};
  bool bias = false;
  DType compute = DType::f32;
};

// In double precision, from random values.
std::vector<double> computed(const Graph& graph, Value y) {
  ReferenceValues fed;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0.25, 2.0);
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    if (!graph.info(id).persistent) continue;
    fed[id].resize(static_cast<std::size_t>(graph.info(id).type.numel()));
    for (double& v : fed[id]) v = uniform(random) - (graph.info(id).name == "x" ? 1.0 : 0.0);
  }
  return evaluate_reference(graph, fed).at(y.id);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-9 * std::max(1.0, std::abs(want[i]))) << i;
}

// A convolution of 4 channels to 6, normalized.
struct FoldedModel {
  Graph graph;
  Value x, between, y;

  explicit FoldedModel(const Layer& layer) {
    const ImageLayout layout = layer.geometry.layout;
    const auto parameter = [&](const char* name, const Shape& shape) {
      return graph.parameter(name, shape, Init::ones());
    };
    x = graph.input("x", {layer.compute, ImageShape(2, 4, 5, 5).in(layout)});
    const Value weight =
        cast(parameter("weight", ImageShape(6, 4 / layer.geometry.groups, 3, 3).in(layout)),
             layer.compute);
    const Value bias = layer.bias ? cast(parameter("bias", {6}), layer.compute) : Value{};
    between = conv2d(x, weight, bias, layer.geometry);
    BatchNorm norm{.eps = 0.01f, .layout = layout};
    y = graph.apply1(norm, {between, parameter("gamma", {6}), parameter("beta", {6}),
                            parameter("mean", {6}), parameter("variance", {6})});
    graph.keep(y, "y");
  }

  std::vector<std::string> operators() const {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes()) names.emplace_back(name_of(*node.op));
    return names;
  }
};

TEST(FoldBatchNorm, ComputesTheSameByAConvolutionAlone) {
  for (const Layer& layer :
       {Layer{}, Layer{.bias = true}, Layer{.geometry = {.stride = {2, 2}, .groups = 2}},
        Layer{.geometry = {.padding = {1, 1}, .layout = ImageLayout::nhwc}, .bias = true},
        Layer{.bias = true, .compute = DType::bf16}}) {
    FoldedModel plain(layer), folded(layer);
    EXPECT_EQ(fold_batch_norm(folded.graph), 1u);
    const auto& nodes = folded.graph.nodes();
    EXPECT_EQ(name_of(*nodes.back().op), "conv2d");
    EXPECT_EQ(nodes.back().outputs[0], folded.y.id);
    expect_near(computed(folded.graph, folded.y), computed(plain.graph, plain.y));
  }
}

TEST(FoldBatchNorm, ScalesWeightsBeforeTheyAreRounded) {
  FoldedModel model({.bias = true, .compute = DType::bf16});
  fold_batch_norm(model.graph);
  dead_nodes(model.graph);
  for (const Node& node : model.graph.nodes())
    if (std::holds_alternative<BatchNorm>(node.op->variant())) {
      for (const ValueId in : node.inputs) EXPECT_EQ(model.graph.info(in).type.dtype, DType::f32);
    }
  EXPECT_THAT(model.operators(), ElementsAre("reshape", "fill", "batch_norm", "reshape", "reshape",
                                             "batch_norm", "reshape", "cast", "cast", "conv2d"));
}

// A norm of 4 channels, and a convolution of what it gives.
struct NormFirst {
  Graph graph;
  Value x, y;

  explicit NormFirst(const ConvGeometry& geometry, bool bias) {
    const auto parameter = [&](const char* name, const Shape& shape) {
      return graph.parameter(name, shape, Init::ones());
    };
    x = graph.input("x", {DType::f32, {2, 4, 5, 5}});
    const Value normalized = batch_norm(x, parameter("gamma", {4}), parameter("beta", {4}),
                                        parameter("mean", {4}), parameter("variance", {4}), 0.01f);
    y = conv2d(normalized, parameter("weight", {6, 4 / geometry.groups, 2, 3}),
               bias ? parameter("bias", {6}) : Value{}, geometry);
  }
};

TEST(FoldBatchNorm, FoldsNormsIntoTheConvolutionBehindThem) {
  for (const bool bias : {false, true}) {
    const ConvGeometry geometry{.stride = {2, 1}};
    NormFirst plain(geometry, bias), folded(geometry, bias);
    EXPECT_EQ(fold_batch_norm(folded.graph), 1u);
    EXPECT_EQ(folded.graph.nodes().back().inputs[0], folded.x.id);
    expect_near(computed(folded.graph, folded.y), computed(plain.graph, plain.y));
  }
}

TEST(FoldBatchNorm, FoldsNormsOnBothSides) {
  const auto surrounded = [] {
    auto model = std::make_unique<NormFirst>(ConvGeometry{}, false);
    Graph& graph = model->graph;
    const auto six = [&](const char* name) { return graph.parameter(name, {6}, Init::ones()); };
    model->y = batch_norm(model->y, six("g"), six("b"), six("m"), six("v"));
    graph.keep(model->y, "z");
    return model;
  };
  const auto plain = surrounded(), folded = surrounded();
  EXPECT_EQ(fold_batch_norm(folded->graph), 2u);
  EXPECT_EQ(folded->graph.nodes().back().inputs[0], folded->x.id);
  expect_near(computed(folded->graph, folded->y), computed(plain->graph, plain->y));
}

TEST(FoldBatchNorm, LeavesNormsBeforePaddingOrGroups) {
  for (const Pair padding : {Pair{1, 0}, Pair{0, 1}, Pair{1, 1}}) {
    NormFirst padded({.padding = padding}, true);
    EXPECT_EQ(fold_batch_norm(padded.graph), 0u);
  }
  NormFirst grouped({.groups = 2}, true);
  EXPECT_EQ(fold_batch_norm(grouped.graph), 0u);
}

TEST(FoldBatchNorm, LeavesConvolutionsWhoseResultOthersRead) {
  FoldedModel kept({});
  kept.graph.keep(kept.between, "between");
  EXPECT_EQ(fold_batch_norm(kept.graph), 0u);
  FoldedModel used({});
  used.graph.keep(relu(used.between), "z");
  EXPECT_EQ(fold_batch_norm(used.graph), 0u);
}

TEST(FoldBatchNorm, LeavesConvolutionsThatAreFinishedAlready) {
  FoldedModel model({});
  std::vector<Node> nodes = model.graph.take_nodes();
  for (Node& node : nodes) {
    if (const auto* conv = std::get_if<Conv2d>(&node.op->variant())) {
      Conv2d finished = *conv;
      finished.epilogue = Epilogue::relu;
      node.op = std::make_shared<const Op>(finished);
    }
    model.graph.append(node);
  }
  EXPECT_EQ(fold_batch_norm(model.graph), 0u);
}

}  // namespace
}  // namespace ridge
