// Steps of training of whole vision networks. Skipped where there is no GPU.

#include <cmath>
#include <string>
#include <vector>

#include "ridge/bench/schedule.h"
#include "ridge/bench/session.h"
#include "ridge/cpu/device.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

std::vector<double> losses(Device& device, const std::string& network, const std::string& dtype,
                           std::string_view mode = "none", int steps = 2) {
  BenchOptions options{
      .network = network, .batch_size = 4, .image_size = 96, .dtype = dtype, .mode = "training"};
  options.compile = mode;
  // So low that the loss falls in proportion to the square of all gradients.
  options.learning_rate = 1e-6;
  BenchSession session(options, device);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(session.iterate().loss);
  return losses;
}

class BenchTrainingOnGpu : public testing::GpuTest,
                           public ::testing::WithParamInterface<std::string> {};
class CompileModesInTrainingOnGpu : public BenchTrainingOnGpu {};

TEST_P(BenchTrainingOnGpu, LearnsWhatItLearnsOnTheCpu) {
  struct Limit {
    const char* dtype;
    double loss, fall;  // the latter relative; 0: it drowns in the rounding of the loss
  };
  CpuDevice cpu;
  const std::vector<double> exact = losses(cpu, GetParam(), "fp32");
  const double fall = exact.front() - exact.back();
  for (const auto& [dtype, of_loss, of_fall] :
       {Limit{"fp32", 1e-3, 0.05}, {"tf32", 0.03, 0.3}, {"bf16", 0.1, 0}}) {
    const std::vector<double> found = losses(device(), GetParam(), dtype);
    EXPECT_NEAR(found.front(), exact.front(), of_loss) << dtype;
    if (of_fall == 0) continue;
    EXPECT_NEAR(found.front() - found.back(), fall, of_fall * fall) << dtype;
  }
}

// From the third step on what was captured is replayed.
TEST_P(CompileModesInTrainingOnGpu, LearnTheSame) {
  const TemporaryCache cache;
  constexpr int steps = 4;
  const std::vector<double> plain = losses(device(), GetParam(), "fp32", "none", steps);
  const double fall = plain.front() - plain.back();
  for (const CompileMode& mode : compile_modes()) {
    const std::vector<double> found = losses(device(), GetParam(), "fp32", mode.name, steps);
    EXPECT_NEAR(found.front(), plain.front(), 1e-3) << mode.name;
    EXPECT_NEAR(found.front() - found.back(), fall, 0.05 * fall) << mode.name;
    // Rounded to 8 bits, norms of few elements make of the same gradients steps of another size.
    const std::vector<double> rounded = losses(device(), GetParam(), "bf16", mode.name, steps);
    EXPECT_NEAR(rounded.front(), plain.front(), 0.2) << mode.name;
    for (const double loss : rounded) EXPECT_TRUE(std::isfinite(loss)) << mode.name;
  }
}

// Those whose loss falls from the first step on: where whole blocks are dropped, it need not.
INSTANTIATE_TEST_SUITE_P(OfSomeFamilies, BenchTrainingOnGpu,
                         ::testing::Values("resnet50", "mobilenet_v2", "shufflenet_v2_x0_5",
                                           "densenet121", "googlenet", "vit_b_32"),
                         [](const auto& named) { return named.param; });

INSTANTIATE_TEST_SUITE_P(OfSomeFamilies, CompileModesInTrainingOnGpu,
                         ::testing::Values("resnet18", "mobilenet_v2"),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace ridge
