// Vision networks as workloads in training.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/session/session.h"
#include "tests/base/temporary_cache.h"
#include "tests/base/temporary_directory.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

RunOptions small(const std::string& network) { return network_options(network, Use::training); }

std::vector<double> losses_of(const RunOptions& options, int steps) {
  CpuDevice device;
  Session session(options, device);
  return losses_of(session, steps);
}

// One of each family; its batch is always the same, which it learns by heart.
class NetworksInTraining : public ::testing::TestWithParam<std::string> {};

TEST_P(NetworksInTraining, LearnTheirBatch) {
  for (const char* dtype : {"fp32", "bf16"}) {
    RunOptions options = small(GetParam());
    options.dtype = dtype;
    const std::vector<double> losses = losses_of(options, 5);
    for (const double loss : losses) EXPECT_TRUE(std::isfinite(loss)) << dtype;
    EXPECT_LT(losses.back(), losses.front()) << dtype;
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachFamily, NetworksInTraining,
                         ::testing::Values("resnet18", "mobilenet_v2", "mobilenet_v3_small",
                                           "shufflenet_v2_x0_5", "shufflenet", "squeezenet1_1",
                                           "mnasnet0_5", "densenet121", "googlenet",
                                           "efficientnet_b0", "efficientnet_v2_s", "regnet_y_400mf",
                                           "convnext_tiny", "vit_b_32", "swin_t",
                                           "lraspp_mobilenet_v3_large"),
                         [](const auto& named) { return named.param; });

// A schedule changes no more than the order of some sums. How far the loss falls in a step, at a
// rate so low that it falls in proportion, is the square of all gradients.
TEST(VisionTraining, HasTheSameGradientsInEveryCompileMode) {
  const TemporaryCache cache;
  for (const char* network :
       {"resnet18", "mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "vit_b_32"}) {
    RunOptions options = small(network);
    options.learning_rate = 1e-6;
    const std::vector<double> plain = losses_of(options, 2);
    const double fall = plain[0] - plain[1];  // or a rise, where the second step drops others
    EXPECT_GT(std::abs(fall), 1e-4) << network;
    for (const std::string_view mode : compile_modes()) {
      options.version = mode;
      const std::vector<double> compiled = losses_of(options, 2);
      EXPECT_NEAR(compiled[0], plain[0], 1e-5 * plain[0]) << network << ", " << mode;
      EXPECT_NEAR(compiled[0] - compiled[1], fall, 0.02 * std::abs(fall))
          << network << ", " << mode;
    }
  }
}

// What a step drops is decided by its number: at a rate of 0 nothing else changes.
TEST(VisionTraining, DropsOtherValuesInEachStep) {
  RunOptions options = small("squeezenet1_1");
  options.learning_rate = 0;
  const std::vector<double> losses = losses_of(options, 2);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_EQ(losses_of(options, 2), losses) << "but the same ones in every run";
}

TEST(VisionTraining, MovesRunningStatistics) {
  CpuDevice device;
  Session session(small("resnet18"), device);
  const Value mean = session.graph().find("bn1.running_mean");
  const std::vector<float> before = session.executor().read_floats(mean);
  session.step();
  EXPECT_NE(session.executor().read_floats(mean), before);
}

TEST(VisionTraining, ResumesWithTheRunningStatistics) {
  const TemporaryDirectory directory;
  CpuDevice device;
  Session first(small("resnet18"), device);
  first.step();
  first.step();
  first.save(directory.path / "checkpoint");
  Session second(small("resnet18"), device);
  second.resume(directory.path / "checkpoint");
  for (const char* name : {"bn1.running_mean", "bn1.running_var", "layer4.1.bn2.running_mean"})
    EXPECT_EQ(second.executor().read_floats(second.graph().find(name)),
              first.executor().read_floats(first.graph().find(name)))
        << name;
  EXPECT_EQ(second.evaluate(2).loss, first.evaluate(2).loss) << "which reads them";
  EXPECT_EQ(second.step().loss, first.step().loss);
}

}  // namespace
}  // namespace ridge
