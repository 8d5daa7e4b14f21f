// Steps of training of whole vision networks. Skipped where there is no GPU.

#include <cmath>
#include <string>
#include <vector>

#include "ridge/bench/session.h"
#include "ridge/cpu/device.h"
#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

class BenchTrainingOnGpu : public testing::GpuTest,
                           public ::testing::WithParamInterface<std::string> {
 protected:
  static std::vector<double> losses(Device& device, const std::string& dtype) {
    BenchOptions options{.network = GetParam(),
                         .batch_size = 4,
                         .image_size = 96,
                         .dtype = dtype,
                         .mode = "training"};
    // So low that the loss falls in proportion to the square of all gradients.
    options.learning_rate = 1e-6;
    BenchSession session(options, device);
    std::vector<double> losses;
    for (int i = 0; i < 2; ++i) losses.push_back(session.iterate().loss);
    return losses;
  }
};

TEST_P(BenchTrainingOnGpu, LearnsWhatItLearnsOnTheCpu) {
  struct Limit {
    const char* dtype;
    double loss, fall;  // the latter relative; 0: it drowns in the rounding of the loss
  };
  CpuDevice cpu;
  const std::vector<double> exact = losses(cpu, "fp32");
  const double fall = exact.front() - exact.back();
  for (const auto& [dtype, of_loss, of_fall] :
       {Limit{"fp32", 1e-3, 0.05}, {"tf32", 0.03, 0.3}, {"bf16", 0.1, 0}}) {
    const std::vector<double> found = losses(device(), dtype);
    EXPECT_NEAR(found.front(), exact.front(), of_loss) << dtype;
    if (of_fall == 0) continue;
    EXPECT_NEAR(found.front() - found.back(), fall, of_fall * fall) << dtype;
  }
}

// Those whose loss falls from the first step on: where whole blocks are dropped, it need not.
INSTANTIATE_TEST_SUITE_P(OfSomeFamilies, BenchTrainingOnGpu,
                         ::testing::Values("resnet50", "mobilenet_v2", "shufflenet_v2_x0_5",
                                           "densenet121", "googlenet", "vit_b_32"),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace ridge
