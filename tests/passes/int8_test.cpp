// What becomes of small graphs, and of whole networks, when their layers turn to integers.

#include "ridge/passes/int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/models/vision/vision.h"
#include "ridge/ops/op.h"
#include "ridge/session/session.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;

constexpr Int8Rules any_layers;

// Images of 32 channels, channels last, and what a test does with them.
struct Small {
  Graph graph;
  Value x = graph.input("x", {DType::f32, {2, 8, 8, 32}});

  Value weight(const std::string& name, Shape shape) {
    return graph.parameter(name, shape, Init::normal(0.1f));
  }
  // A convolution of 3 x 3 with `channels` results.
  Value conv(Value in, const std::string& name, std::int64_t channels, Value residual = {},
             Epilogue epilogue = Epilogue::relu) {
    Conv2d op{{.padding = {1, 1}, .layout = ImageLayout::nhwc}};
    op.residual = static_cast<bool>(residual);
    op.epilogue = epilogue;
    std::vector<Value> operands{in, weight(name, {channels, 3, 3, in.shape()[3]})};
    if (residual) operands.push_back(residual);
    return graph.apply(op, operands)[0];
  }
  Value linear(Value in, const std::string& name, std::int64_t width) {
    return graph.apply1(Linear{.epilogue = Epilogue::relu},
                        {in, weight(name, {width, in.shape()[-1]})});
  }
  // A last layer, which stays as it is.
  void end(Value in) {
    const Value pooled =
        graph.apply1(AdaptiveAvgPool2d{.size = {1, 1}, .layout = ImageLayout::nhwc}, {in});
    const Value rows = reshape(pooled, {in.shape()[0], in.shape()[3]});
    graph.keep(linear(rows, "classifier", 10), "logits");
  }
};

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes())
    if (!std::holds_alternative<Fill>(node.op->variant()) &&
        !std::holds_alternative<Int8Weights>(node.op->variant()))
      names.emplace_back(name_of(*node.op));
  return names;
}

std::vector<const Int8Conv2d*> int8_convs(const Graph& graph) {
  std::vector<const Int8Conv2d*> found;
  for (const Node& node : graph.nodes())
    if (const auto* op = std::get_if<Int8Conv2d>(&node.op->variant())) found.push_back(op);
  return found;
}

TEST(Int8Layers, HandEachOtherIntegers) {
  Small small;
  const Value a = small.conv(small.x, "a", 32), b = small.conv(a, "b", 32);
  small.end(small.conv(b, "c", 32));
  EXPECT_THAT(int8_values(small.graph, any_layers), ElementsAre(small.x.id, a.id, b.id));
  const Int8Ranges ranges{{small.x.id, 127.0f}, {a.id, 254.0f}, {b.id, 63.5f}};
  EXPECT_EQ(int8_layers(small.graph, any_layers, ranges), 3u);
  EXPECT_THAT(names_of(small.graph),
              ElementsAre("int8_quantize", "int8_conv2d", "int8_conv2d", "int8_conv2d",
                          "adaptive_avg_pool2d", "reshape", "linear"));
  const auto convs = int8_convs(small.graph);
  EXPECT_EQ(convs[0]->out, DType::s8);
  EXPECT_EQ(convs[0]->x_scale, 1.0f);
  EXPECT_EQ(convs[0]->y_scale, 2.0f);
  EXPECT_EQ(convs[1]->x_scale, 2.0f);
  EXPECT_EQ(convs[1]->y_scale, 0.5f);
  EXPECT_EQ(convs[2]->x_scale, 0.5f);
  EXPECT_EQ(convs[2]->out, DType::f32);  // of which the mean is taken
}

TEST(Int8Layers, RoundNoResidualOfWhatIsNotRounded) {
  Small small;
  const Value a = small.conv(small.x, "a", 32), b = small.conv(a, "b", 32);
  small.end(small.conv(b, "c", 32, a));
  int8_layers(small.graph, any_layers, {});
  const auto convs = int8_convs(small.graph);
  ASSERT_EQ(convs.size(), 3u);
  EXPECT_EQ(convs[0]->out, DType::f32);
  EXPECT_EQ(convs[1]->out, DType::s8);
  EXPECT_EQ(convs[2]->out, DType::f32);
  EXPECT_EQ(std::ranges::count(names_of(small.graph), "int8_quantize"), 2);
}

TEST(Int8Layers, TakeIntegersAsResiduals) {
  Small small;
  const Value a = small.conv(small.x, "a", 32), b = small.conv(a, "b", 32);
  const Value c = small.conv(b, "c", 32, a);
  small.end(small.conv(c, "d", 32));
  int8_layers(small.graph, any_layers, {{a.id, 254.0f}, {c.id, 12.7f}});
  const auto convs = int8_convs(small.graph);
  ASSERT_EQ(convs.size(), 4u);
  EXPECT_EQ(convs[2]->out, DType::s8);
  EXPECT_TRUE(convs[2]->residual);
  EXPECT_EQ(convs[2]->residual_scale, 2.0f);
  EXPECT_EQ(convs[2]->y_scale, int8_scale(12.7f));
  EXPECT_EQ(std::ranges::count(names_of(small.graph), "int8_quantize"), 1);
}

TEST(Int8Layers, RoundOnceWhatOthersNeedAsItIs) {
  Small small;
  const Value a = small.conv(small.x, "a", 32);
  const Value tanh = small.graph.apply1(Activation{ActivationKind::tanh}, {a});
  const Value b = small.conv(a, "b", 32), c = small.conv(a, "c", 32, tanh);
  small.end(small.graph.apply1(Add{}, {b, c}));
  int8_layers(small.graph, any_layers, {});
  EXPECT_THAT(
      names_of(small.graph),
      ElementsAre("int8_quantize", "int8_conv2d", "activation", "int8_quantize", "int8_conv2d",
                  "int8_conv2d", "add", "adaptive_avg_pool2d", "reshape", "linear"));
  for (const Int8Conv2d* conv : int8_convs(small.graph)) EXPECT_EQ(conv->out, DType::f32);
}

TEST(Int8Layers, ShareTheScaleOfWhatIsJoined) {
  Small small;
  const Value a = small.conv(small.x, "a", 32), b = small.conv(small.x, "b", 16);
  const Value both[] = {a, b};
  const Value joined = concat(both, 3);
  const Value pooled = small.graph.apply1(
      MaxPool2d{{.kernel = {2, 2}, .stride = {2, 2}, .layout = ImageLayout::nhwc}}, {joined});
  small.end(small.conv(pooled, "c", 32));
  int8_layers(small.graph, any_layers, {{a.id, 127.0f}, {b.id, 381.0f}, {joined.id, 381.0f}});
  const auto convs = int8_convs(small.graph);
  ASSERT_EQ(convs.size(), 3u);
  EXPECT_EQ(convs[0]->y_scale, 3.0f);
  EXPECT_EQ(convs[1]->y_scale, 3.0f);
  EXPECT_EQ(convs[2]->x_scale, 3.0f);
  for (const Node& node : small.graph.nodes())
    if (std::holds_alternative<Concat>(node.op->variant()) ||
        std::holds_alternative<MaxPool2d>(node.op->variant())) {
      EXPECT_EQ(small.graph.info(node.outputs[0]).type.dtype, DType::s8);
    }
}

TEST(Int8Layers, AreLinearTooAsImagesOfRows) {
  Small small;
  const Value rows = reshape(small.x, {128, 32});
  const Value a = small.linear(rows, "a", 64), b = small.linear(a, "b", 32);
  small.end(reshape(b, {2, 8, 8, 32}));
  EXPECT_EQ(int8_layers(small.graph, any_layers, {}), 2u);
  const auto convs = int8_convs(small.graph);
  ASSERT_EQ(convs.size(), 2u);
  EXPECT_EQ(convs[0]->out, DType::s8);
  EXPECT_EQ(convs[1]->out, DType::f32);
}

TEST(Int8Layers, AreThoseThatTheRulesTake) {
  for (const auto& [channels, groups, expected] :
       {std::tuple{32, 1, true}, {40, 1, false}, {32, 32, true}, {32, 4, false}}) {
    Small small;
    const Value weight = small.weight("a", {channels, 3, 3, 32 / groups});
    const Conv2d op{{.padding = {1, 1}, .groups = groups, .layout = ImageLayout::nhwc}};
    small.end(small.graph.apply1(op, {small.x, weight}));
    const Int8Rules rules{.channel_multiple = 16, .groups = false};
    EXPECT_EQ(int8_layers(small.graph, rules, {}), expected ? 1u : 0u) << channels << groups;
  }
}

TEST(Int8Layers, RefuseRangesThatAreNotFinite) {
  for (const float range : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Small small;
    small.end(small.conv(small.x, "a", 32));
    EXPECT_THROW(int8_layers(small.graph, any_layers, {{small.x.id, range}}), Error);
  }
}

// Products with a weight are linear layers without bias: a LLaMA's.
TEST(Int8Layers, AreProductsWithWeightsToo) {
  Small small;
  const Value rows = reshape(small.x, {128, 32});
  const Value a = project(rows, small.weight("a", {64, 32}));
  const Value scores = matmul(a, a, {.trans_b = true});  // of no weight
  small.graph.keep(scores, "scores");
  small.end(reshape(project(a, small.weight("b", {32, 64})), {2, 8, 8, 32}));
  EXPECT_EQ(int8_layers(small.graph, any_layers, {}), 2u);
  EXPECT_EQ(int8_convs(small.graph).size(), 2u);
  EXPECT_EQ(std::ranges::count(names_of(small.graph), "matmul"), 1);
}

// The first and the last layer have a third of squeezenet's, and less of all others'; attention's
// own products are some of a LLaMA's.
TEST(Int8Layers, AreMostOfANetworksWork) {
  for (const char* name :
       {"resnet50", "mobilenet_v2", "efficientnet_b0", "densenet121", "inception_v3", "vit_b_16",
        "swin_t", "squeezenet1_1", "vgg11_bn", "regnet_y_400mf", "convnext_tiny", "tiny_llama"}) {
    RunOptions options = default_options(name);
    options.mode = name_of(Use::inference);
    options.version = "default";
    options.batch_size = 1;
    const auto macs_in_all_and_integers = [&](const char* dtype) {
      options.dtype = dtype;
      options.resolve();
      Graph graph;
      build_graph(graph, options);
      std::int64_t all = 0, integers = 0;
      for (const Node& node : graph.nodes()) {
        const std::int64_t macs = cost(graph, node).macs;
        all += macs;
        if (std::holds_alternative<Int8Conv2d>(node.op->variant())) integers += macs;
      }
      return std::pair(all, integers);
    };
    const auto [before, none] = macs_in_all_and_integers("fp32");
    const auto [after, integers] = macs_in_all_and_integers("int8");
    EXPECT_EQ(none, 0) << name;
    EXPECT_EQ(after, before) << name;
    EXPECT_GT(static_cast<double>(integers), 0.66 * static_cast<double>(before)) << name;
  }
}

}  // namespace
}  // namespace ridge
