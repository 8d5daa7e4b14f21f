// Steps of training of whole vision networks. Skipped where there is no GPU.

#include <cmath>
#include <string>
#include <vector>

#include "ridge/cpu/device.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

std::vector<double> losses(Device& device, const std::string& network, const std::string& dtype,
                           std::string_view mode = "none", int steps = 2) {
  RunOptions options = network_options(network, Use::training, mode, dtype, 96);
  options.batch_size = 4;
  // So low that the loss falls in proportion to the square of all gradients.
  options.learning_rate = 1e-6;
  Session session(options, device);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(session.step().loss);
  return losses;
}

class VisionTrainingOnGpu : public testing::GpuTest,
                            public ::testing::WithParamInterface<std::string> {};
class CompileModesInTrainingOnGpu : public VisionTrainingOnGpu {};

TEST_P(VisionTrainingOnGpu, LearnsWhatItLearnsOnTheCpu) {
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
    EXPECT_NEAR(found.front() - found.back(), fall, of_fall * std::abs(fall)) << dtype;
  }
}

// From the third step on what was captured is replayed.
TEST_P(CompileModesInTrainingOnGpu, LearnTheSame) {
  const TemporaryCache cache;
  constexpr int steps = 4;
  const std::vector<double> plain = losses(device(), GetParam(), "fp32", "none", steps);
  const double fall = plain.front() - plain.back();
  for (const std::string_view mode : compile_modes()) {
    const std::vector<double> found = losses(device(), GetParam(), "fp32", mode, steps);
    EXPECT_NEAR(found.front(), plain.front(), 1e-3) << mode;
    EXPECT_NEAR(found.front() - found.back(), fall, 0.05 * std::abs(fall)) << mode;
    // Rounded to 8 bits, norms of few elements make of the same gradients steps of another size.
    const std::vector<double> rounded = losses(device(), GetParam(), "bf16", mode, steps);
    EXPECT_NEAR(rounded.front(), plain.front(), 0.2) << mode;
    for (const double loss : rounded) EXPECT_TRUE(std::isfinite(loss)) << mode;
  }
}

// Those whose loss falls from the first step on: where whole blocks are dropped, it need not.
INSTANTIATE_TEST_SUITE_P(OfSomeFamilies, VisionTrainingOnGpu,
                         ::testing::Values("resnet50", "mobilenet_v2", "shufflenet_v2_x0_5",
                                           "densenet121", "googlenet", "vit_b_32"),
                         [](const auto& named) { return named.param; });

INSTANTIATE_TEST_SUITE_P(OfSomeFamilies, CompileModesInTrainingOnGpu,
                         ::testing::Values("resnet18", "mobilenet_v2"),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace ridge
