// Whole vision networks on the GPU. Skipped where there is none.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/models/ruled_network.h"

namespace ridge::testing {
namespace {

std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const VisionNetwork& network : vision_networks()) names.emplace_back(network.name);
  return names;
}

class NetworksOnGpu : public GpuTest, public ::testing::WithParamInterface<std::string> {};

// A number for --gtest_output.
void record(const std::string& what, double value) {
  ::testing::Test::RecordProperty(what, fmt::format("{:.3g}", value));
}

TEST_P(NetworksOnGpu, ComputeTorchvisionsLogitsInEveryDtype) {
  RuledNetwork network(GetParam());
  for (const char* dtype : {"fp32", "tf32", "bf16", "fp16", "int8"}) {
    const double error = network.error(network.logits(device(), dtype));
    EXPECT_LT(error, logits_tolerance(GetParam(), dtype)) << dtype;
    record(dtype, error);
  }
}

TEST_P(NetworksOnGpu, TakeAStepOfTraining) {
  const RuledNetwork::Step step = RuledNetwork(GetParam()).training_step(device(), "fp32");
  EXPECT_TRUE(std::isfinite(step.loss));
  EXPECT_TRUE(std::isfinite(step.gradient_norm));
  record("loss", step.loss);
  record("gradient norm", step.gradient_norm);
}

INSTANTIATE_TEST_SUITE_P(All, NetworksOnGpu, ::testing::ValuesIn(names_of_all()),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace ridge::testing
