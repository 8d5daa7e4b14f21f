// Vision networks in training: loss, gradients and running statistics against those of PyTorch,
// which vision_gradients.py wrote down.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/models/vision/vision.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/executor.h"
#include "tests/base/sanitized.h"
#include "tests/models/vision_rule.h"

namespace ridge {
namespace {

using nlohmann::json;

const json& golden() {
  static const json all = [] {
    std::ifstream file(RIDGE_SOURCE_DIR "/tests/models/vision_gradients.json");
    return json::parse(file);
  }();
  return all;
}

std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const auto& [name, expected] : golden().items()) names.push_back(name);
  return names;
}

void feed(Executor& executor, const Model& model) {
  const std::uint64_t stream = stream_of("images");
  std::vector<float> images(static_cast<std::size_t>(model.input.type().numel()));
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = rule_uniform(stream, i) * 4.0f - 2.0f;
  executor.write(model.input, std::span<const float>(images));
  const std::int64_t classes = model.logits.shape()[1];
  std::vector<std::int32_t> targets(static_cast<std::size_t>(model.targets.type().numel()));
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * 37 % classes);
  executor.write(model.targets, std::span<const std::int32_t>(targets));
}

struct Checksum {
  double sum = 0, norm = 0;
};

Checksum checksum_of(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float x : values) sum += x, squares += static_cast<double>(x) * x;
  return {sum, std::sqrt(squares)};
}

// Running statistics, less what they were before the step.
std::vector<float> movement(Graph& graph, Executor& executor, const std::string& name) {
  const Value after = graph.find(name);
  std::vector<float> moved = executor.read_floats(after), before(moved.size());
  fill_by_rule(before, name, after.shape());
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] -= before[i];
  return moved;
}

class NetworkGradients : public ::testing::TestWithParam<std::string> {};

TEST_P(NetworkGradients, ArePyTorchs) {
  const json& expected = golden()[GetParam()];
  if (is_sanitized) GTEST_SKIP() << "takes too long";
  Graph graph;
  const Model model = build_vision(
      graph, GetParam(),
      {.batch_size = 4, .image_size = expected["size"], .training = true, .dropout = false});
  EXPECT_FALSE(model.step) << "something is dropped";
  const std::vector<Value> parameters = graph.parameters();
  const std::vector<Value> grads = gradients(model.loss, parameters);
  for (std::size_t i = 0; i < grads.size(); ++i)
    graph.keep(grads[i], graph.info(parameters[i].id).name + ".grad");
  CpuDevice device;
  Executor executor(graph, device);
  initialize_by_rule(graph, executor);
  feed(executor, model);
  executor.run(Phase::forward);
  executor.run(Phase::backward);

  const double whole = expected["norm"];
  // Beside what single precision did to PyTorch's gradients.
  const double relative = 1e-3 + expected["rounding"].get<double>();
  const double loss = expected["loss"];
  EXPECT_NEAR(executor.read_scalar(model.loss), loss, 1e-4 * loss);
  double squares = 0;
  for (const Value& grad : grads)
    squares += std::pow(checksum_of(executor.read_floats(grad)).norm, 2);
  EXPECT_NEAR(std::sqrt(squares), whole, relative * whole);
  for (const auto& [name, wanted] : expected["gradients"].items()) {
    const Value grad = graph.find(name + ".grad");
    ASSERT_TRUE(grad) << name;
    const auto [sum, norm] = checksum_of(executor.read_floats(grad));
    const double limit = relative * wanted[1].get<double>() + 1e-6 * whole;
    EXPECT_NEAR(norm, wanted[1], limit) << name;
    EXPECT_NEAR(sum, wanted[0], limit * std::sqrt(static_cast<double>(grad.type().numel())))
        << name;
  }
  const json statistics = expected.value("statistics", json::object());
  for (const auto& [name, wanted] : statistics.items()) {
    ASSERT_TRUE(graph.find(name)) << name;
    const std::vector<float> moved = movement(graph, executor, name);
    const auto [sum, norm] = checksum_of(moved);
    const double root = std::sqrt(static_cast<double>(moved.size()));
    // Numbers up to 1.5 are rounded before their difference is taken.
    const double limit = relative * wanted[1].get<double>() + 0x1p-23 * root;
    EXPECT_NEAR(norm, wanted[1], limit) << name;
    EXPECT_NEAR(sum, wanted[0], limit * root) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, NetworkGradients, ::testing::ValuesIn(names_of_all()),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace ridge
