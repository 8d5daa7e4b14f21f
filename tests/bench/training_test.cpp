#include "ridge/bench/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/bench/schedule.h"
#include "ridge/bench/session.h"
#include "ridge/cpu/device.h"
#include "tests/base/temporary_cache.h"

namespace ridge {
namespace {

BenchOptions small(const std::string& network) {
  BenchOptions options{.network = network, .batch_size = 2, .image_size = 64, .mode = "training"};
  options.learning_rate = 1e-3;  // at which networks without batch norm learn, too
  return options;
}

std::vector<double> losses_of(const BenchOptions& options, int steps) {
  CpuDevice device;
  BenchSession session(options, device);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(session.iterate().loss);
  return losses;
}

// One of each family; its batch is always the same, which it learns by heart.
class NetworksInTraining : public testing::TestWithParam<std::string> {};

TEST_P(NetworksInTraining, LearnTheirBatch) {
  for (const char* dtype : {"fp32", "bf16"}) {
    BenchOptions options = small(GetParam());
    options.dtype = dtype;
    const std::vector<double> losses = losses_of(options, 5);
    for (const double loss : losses) EXPECT_TRUE(std::isfinite(loss)) << dtype;
    EXPECT_LT(losses.back(), losses.front()) << dtype;
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachFamily, NetworksInTraining,
                         testing::Values("resnet18", "mobilenet_v2", "mobilenet_v3_small",
                                         "shufflenet_v2_x0_5", "shufflenet", "squeezenet1_1",
                                         "mnasnet0_5", "densenet121", "googlenet",
                                         "efficientnet_b0", "vit_b_32", "swin_t",
                                         "lraspp_mobilenet_v3_large"),
                         [](const auto& named) { return named.param; });

// A schedule changes no more than the order of some sums. How far the loss falls in a step, at a
// rate so low that it falls in proportion, is the square of all gradients.
TEST(BenchTraining, HasTheSameGradientsInEveryCompileMode) {
  const TemporaryCache cache;
  for (const char* network :
       {"resnet18", "mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "vit_b_32"}) {
    BenchOptions options = small(network);
    options.learning_rate = 1e-6;
    const std::vector<double> plain = losses_of(options, 2);
    const double fall = plain[0] - plain[1];
    EXPECT_GT(fall, 1e-4) << network;
    for (const CompileMode& mode : compile_modes()) {
      options.compile = mode.name;
      const std::vector<double> compiled = losses_of(options, 2);
      EXPECT_NEAR(compiled[0], plain[0], 1e-5 * plain[0]) << network << ", " << mode.name;
      EXPECT_NEAR(compiled[0] - compiled[1], fall, 0.02 * fall) << network << ", " << mode.name;
    }
  }
}

// What a step drops is decided by its number: at a rate of 0 nothing else changes.
TEST(BenchTraining, DropsOtherValuesInEachStep) {
  BenchOptions options = small("squeezenet1_1");
  options.learning_rate = 0;
  const std::vector<double> losses = losses_of(options, 2);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_EQ(losses_of(options, 2), losses) << "but the same ones in every run";
}

TEST(BenchTraining, RefusesOptionsThatMakeNoSense) {
  BenchOptions options = small("resnet18");
  options.learning_rate = -1;
  EXPECT_THROW(options.check(), UsageError);
  options.learning_rate = std::nan("");
  EXPECT_THROW(options.check(), UsageError);
  EXPECT_THROW((BenchOptions{.data = "digits.safetensors"}).check(), UsageError);
}

TEST(BenchTraining, MovesRunningStatistics) {
  CpuDevice device;
  BenchSession session(small("resnet18"), device);
  const Value mean = session.graph().find("bn1.running_mean");
  const std::vector<float> before = session.executor().read_floats(mean);
  session.iterate();
  EXPECT_NE(session.executor().read_floats(mean), before);
}

}  // namespace
}  // namespace ridge
