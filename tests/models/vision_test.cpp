#include "ridge/models/vision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/bench/session.h"
#include "ridge/cpu/device.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/executor.h"
#include "tests/models/vision_rule.h"

namespace ridge {
namespace {

using nlohmann::json;

const json& golden() {
  static const json all = [] {
    std::ifstream file(RIDGE_SOURCE_DIR "/tests/models/vision_golden.json");
    return json::parse(file);
  }();
  return all;
}

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

void write_weights(Graph& graph, Executor& executor) {
  executor.initialize(0);  // constants keep what they get here
  std::vector<float> host;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    const bool weights = info.role == Role::parameter || info.role == Role::buffer;
    if (!weights || info.init.kind == Init::Kind::values) continue;
    host.resize(static_cast<std::size_t>(info.type.numel()));
    fill_by_rule(host, info.name, info.type.shape);
    executor.write(graph.value(id), std::span<const float>(host));
  }
}

void write_image(const VisionModel& model, Executor& executor) {
  const std::uint64_t stream = stream_of("images");
  std::vector<float> host(static_cast<std::size_t>(model.images.type().numel()));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = rule_uniform(stream, i) * 4.0f - 2.0f;
  executor.write(model.images, std::span<const float>(host));
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(model.targets.type().numel()));
  executor.write(model.targets, std::span<const std::int32_t>(targets));
}

class Networks : public testing::TestWithParam<std::string> {};

TEST_P(Networks, HaveTorchvisionsSizes) {
  const std::string name = GetParam();
  Graph graph;
  const VisionModel model = build_vision(graph, name, {});
  if (without_golden().contains(name)) {
    EXPECT_EQ(parameter_count(graph), without_golden()[name]["parameters"]);
    EXPECT_EQ(model.logits.shape(), (Shape{1, 1000}));
    return;
  }
  ASSERT_TRUE(golden().contains(name));
  const json& expected = golden()[name];
  EXPECT_EQ(parameter_count(graph), expected["parameters"]);
  EXPECT_EQ(total_cost(graph).macs, expected["macs"]);
  const auto shape = expected["shape"].get<std::vector<std::int64_t>>();
  EXPECT_EQ(model.logits.shape(), Shape(shape));
}

// In the form for training: by the batch's statistics, with what is dropped decided by the step.
TEST_P(Networks, GiveEveryParameterAGradientInTraining) {
  Graph graph;
  const VisionModel model = build_vision(graph, GetParam(), {.batch_size = 2, .training = true});
  const std::vector<Value> parameters = graph.parameters();
  std::vector<Value> grads;
  ASSERT_NO_THROW(grads = gradients(model.loss, parameters));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_TRUE(grads[i]) << graph.info(parameters[i].id).name;
    EXPECT_EQ(grads[i].type(), parameters[i].type()) << graph.info(parameters[i].id).name;
  }
}

// Whether this program is one that a sanitizer makes some ten times slower.
#ifdef __SANITIZE_ADDRESS__
constexpr bool is_slow = true;
#else
constexpr bool is_slow = false;
#endif

TEST_P(Networks, ComputeTorchvisionsLogits) {
  const std::string name = GetParam();
  if (without_golden().contains(name)) GTEST_SKIP() << "torchvision has none";
  if (is_slow && golden()[name]["macs"] > 1'000'000'000) GTEST_SKIP() << "takes too long";
  Graph graph;
  const VisionModel model = build_vision(graph, name, {});
  CpuDevice device;
  Executor executor(graph, device, {.planned = true});
  write_weights(graph, executor);
  write_image(model, executor);
  executor.run(Phase::forward);
  const std::vector<float> logits = executor.read_floats(model.logits);
  const json& expected = golden()[name];
  const auto elements = expected["elements"].get<std::vector<std::size_t>>();
  const auto values = expected["values"].get<std::vector<double>>();
  // Two orders of summation through a hundred layers.
  const double limit = 1e-4 * expected["rms"].get<double>();
  for (std::size_t i = 0; i < elements.size(); ++i)
    EXPECT_NEAR(logits[elements[i]], values[i], limit) << "element " << elements[i];
}

INSTANTIATE_TEST_SUITE_P(All, Networks, testing::ValuesIn(names_of_all()),
                         [](const auto& named) { return named.param; });

TEST(VisionNetworks, AreAllThere) {
  const std::vector<std::string> names = names_of_all();
  for (const auto& [name, expected] : golden().items()) EXPECT_THAT(names, testing::Contains(name));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.size(), golden().size() + without_golden().size());
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
  EXPECT_THAT(complaint_of("resnet5", {}), testing::HasSubstr("resnet50"));
  EXPECT_THAT(complaint_of("resnet50", {.batch_size = 0}), testing::HasSubstr("batch size is 0"));
  EXPECT_THAT(complaint_of("alexnet", {.image_size = 62}), testing::HasSubstr("62 x 62"));
  EXPECT_THAT(complaint_of("maxvit_t", {.image_size = 225}), testing::HasSubstr("225"));
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
