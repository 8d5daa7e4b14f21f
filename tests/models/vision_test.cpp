#include "ridge/models/vision/vision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/op.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/executor.h"
#include "ridge/session/session.h"
#include "tests/base/sanitized.h"
#include "tests/models/ruled_network.h"

namespace ridge {
namespace {

using nlohmann::json;
using testing::logits_tolerance;
using testing::RuledNetwork;
using testing::vision_golden;

// What torchvision does not have; the sizes are those of the papers' own tables and releases.
const json& without_golden() {
  static const json all = {
      {"shufflenet", {{"parameters", 1865728}}},
      {"xception", {{"parameters", 22855952}}},
  };
  return all;
}

std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const VisionNetwork& network : vision_networks()) names.emplace_back(network.name);
  return names;
}

class Networks : public ::testing::TestWithParam<std::string> {};

constexpr const char* how_to_add =
    "docs/internals/adding-a-network.md says how a new network gets what it is compared with";

TEST_P(Networks, HaveTorchvisionsSizes) {
  const std::string name = GetParam();
  Graph graph;
  const Model model = build_vision(graph, name, {});
  if (without_golden().contains(name)) {
    EXPECT_EQ(parameter_count(graph), without_golden()[name]["parameters"]);
    EXPECT_EQ(model.logits.shape(),
              (Shape{1, without_golden()[name].value("classes", std::int64_t{1000})}));
    return;
  }
  ASSERT_TRUE(vision_golden().contains(name)) << how_to_add;
  const json& expected = vision_golden()[name];
  EXPECT_EQ(parameter_count(graph), expected["parameters"]);
  EXPECT_EQ(cost_of_step(graph, 1).total().macs, expected["macs"]);
  const auto shape = expected["shape"].get<std::vector<std::int64_t>>();
  EXPECT_EQ(model.logits.shape(), Shape(shape));
}

// Stochastic depth drops the more often the deeper a block is: in proportion to its number, up to
// the rate that torchvision has for the last.
TEST(StochasticDepth, RisesToItsRateAtTheLastBlock) {
  struct Case {
    const char* name;
    float rate;
    std::size_t blocks;
  };
  for (const auto& [name, rate, blocks] : {Case{"swin_t", 0.2f, 12},
                                           {"swin_s", 0.3f, 24},
                                           {"swin_b", 0.5f, 24},
                                           {"convnext_tiny", 0.1f, 18},
                                           {"convnext_small", 0.4f, 36},
                                           {"convnext_base", 0.5f, 36}}) {
    Graph graph;
    build_vision(graph, name, {.batch_size = 2, .training = true});
    std::set<float> rates;  // of whole samples; two branches of a block have one
    for (const Node& node : graph.nodes())
      if (const auto* op = std::get_if<Dropout>(&node.op->variant()); op && op->block > 1)
        rates.insert(op->rate);
    ASSERT_EQ(rates.size(), blocks - 1) << name << ": the first drops nothing";
    std::size_t block = 0;
    for (const float each : rates)
      EXPECT_NEAR(each, rate * static_cast<float>(++block) / static_cast<float>(blocks - 1), 1e-6)
          << name << " " << block;
  }
}

// In the form for training: by the batch's statistics, with what is dropped decided by the step.
TEST_P(Networks, GiveEveryParameterAGradientInTraining) {
  Graph graph;
  const Model model = build_vision(graph, GetParam(), {.batch_size = 2, .training = true});
  const std::vector<Value> parameters = graph.parameters();
  std::vector<Value> grads;
  ASSERT_NO_THROW(grads = gradients(model.loss, parameters));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_TRUE(grads[i]) << graph.info(parameters[i].id).name;
    EXPECT_EQ(grads[i].type(), parameters[i].type()) << graph.info(parameters[i].id).name;
  }
}

// Weights lie in memory three times while a network takes them: more would be 8 GB.
constexpr std::int64_t most_parameters = 640'000'000;

TEST_P(Networks, ComputeTorchvisionsLogits) {
  const std::string name = GetParam();
  if (without_golden().contains(name)) GTEST_SKIP() << "torchvision has none";
  ASSERT_TRUE(vision_golden().contains(name)) << how_to_add;
  const std::int64_t macs = vision_golden()[name]["macs"];
  if (vision_golden()[name]["parameters"] > most_parameters)
    GTEST_SKIP() << "takes too much memory; ridge_networks checks it";
  if (is_sanitized && macs > 1'000'000'000) GTEST_SKIP() << "takes too long";
  CpuDevice device;
  RuledNetwork network(name);
  std::vector<std::string> dtypes{"fp32"};
  // The large ones are made of the same layers; ridge_networks checks all.
  if (macs < 5'000'000'000) dtypes.insert(dtypes.end(), {"bf16", "fp16", "int8"});
  for (const std::string& dtype : dtypes)
    EXPECT_LT(network.error(network.logits(device, dtype)), logits_tolerance(name, dtype)) << dtype;
}

INSTANTIATE_TEST_SUITE_P(All, Networks, ::testing::ValuesIn(names_of_all()),
                         [](const auto& named) { return named.param; });

// The standard deviation of each fresh weight tensor of more than one dimension, by its name.
std::map<std::string, float> fresh_deviations(std::string_view network) {
  Graph graph;
  build_vision(graph, network, {});
  std::map<std::string, float> deviations;
  for (const Value parameter : graph.parameters()) {
    const ValueInfo& info = graph.info(parameter.id);
    if (info.init.kind == Init::Kind::normal) deviations[info.name] = info.init.value;
  }
  return deviations;
}

TEST(FreshWeights, OfConvNeXtAllHaveOneDeviation) {
  const std::map<std::string, float> deviations = fresh_deviations("convnext_tiny");
  EXPECT_EQ(deviations.size(), 1 + 18 * 3 + 3 + 1u);  // stem, blocks, between stages, head
  for (const auto& [name, deviation] : deviations) EXPECT_EQ(deviation, 0.02f) << name;
  Graph graph;
  build_vision(graph, "convnext_tiny", {});
  EXPECT_EQ(graph.info(graph.find("features.1.0.layer_scale").id).init, Init::constant(1e-6f));
}

// Too small to change the logits by more than their tolerance.
TEST(LayerNorms, OfConvNeXtHaveTorchvisionsEpsilon) {
  Graph graph;
  build_vision(graph, "convnext_tiny", {});
  std::size_t norms = 0;
  for (const Node& node : graph.nodes())
    if (const auto* op = std::get_if<LayerNorm>(&node.op->variant())) {
      EXPECT_EQ(op->eps, 1e-6f);
      ++norms;
    }
  EXPECT_EQ(norms, 1 + 18 + 3 + 1u);  // stem, blocks, between stages, head
}

// By the outputs that a convolution would have without groups.
TEST(FreshWeights, OfRegNetAreThoseOfUngroupedConvolutions) {
  const std::map<std::string, float> deviations = fresh_deviations("regnet_y_400mf");
  const std::string block = "trunk_output.block2.block2-0.";
  const auto by_outputs = [](double outputs) { return static_cast<float>(std::sqrt(2 / outputs)); };
  EXPECT_FLOAT_EQ(deviations.at("stem.0.weight"), by_outputs(9 * 32));
  EXPECT_FLOAT_EQ(deviations.at(block + "f.a.0.weight"), by_outputs(104));
  EXPECT_FLOAT_EQ(deviations.at(block + "f.b.0.weight"), by_outputs(9 * 104));
  EXPECT_FLOAT_EQ(deviations.at(block + "f.se.fc1.weight"), by_outputs(12));
  EXPECT_FLOAT_EQ(deviations.at(block + "proj.0.weight"), by_outputs(104));
  EXPECT_FLOAT_EQ(deviations.at("fc.weight"), 0.01f);
}

TEST(VisionNetworks, AreAllThere) {
  const std::vector<std::string> names = names_of_all();
  for (const auto& [name, expected] : vision_golden().items())
    EXPECT_THAT(names, ::testing::Contains(name));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.size(), vision_golden().size() + without_golden().size());
}

TEST(VisionNetworks, GoByTheirAliasesToo) {
  EXPECT_EQ(vision_network("resnext50").name, "resnext50_32x4d");
  EXPECT_EQ(vision_network("SqueezeNet1.1").name, "squeezenet1_1");
  EXPECT_EQ(vision_network("inception_v3").input_size, 299);
  for (const VisionNetwork& network : vision_networks())
    for (const std::string_view alias : network.aliases)
      EXPECT_EQ(vision_network(alias).name, network.name);
}

std::string complaint_of(std::string_view name, const VisionOptions& options) {
  Graph graph;
  try {
    build_vision(graph, name, options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(VisionNetworks, SayWhatIsWrong) {
  EXPECT_EQ(complaint_of("resnet5", {}), "there is no vision network 'resnet5'");
  EXPECT_THAT(complaint_of("resnet50", {.batch_size = 0}), ::testing::HasSubstr("batch size is 0"));
  EXPECT_THAT(complaint_of("alexnet", {.image_size = 62}), ::testing::HasSubstr("62 x 62"));
  EXPECT_THAT(complaint_of("maxvit_t", {.image_size = 225}), ::testing::HasSubstr("225"));
  EXPECT_THAT(complaint_of("vit_b_16", {.image_size = 100}), ::testing::HasSubstr("100 x 100"));
}

// The least size that each says is the least that works.
TEST_P(Networks, TakeImagesDownToTheirLeastSize) {
  const std::string name = GetParam();
  if (name == "maxvit_t") GTEST_SKIP() << "takes multiples of 224 alone";
  std::int64_t size = 1;
  while (!complaint_of(name, {.image_size = size}).empty()) ++size;
  Graph graph;
  EXPECT_NO_THROW(build_vision(graph, name, {.image_size = size})) << size;
}

}  // namespace
}  // namespace ridge
