// `ridge bench` on a GPU: every compile mode computes what operator by operator is computed.

#include <gmock/gmock.h>

#include <cmath>

#include "ridge/run/autotuner.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"
#include "tests/models/vision_rule.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

struct VisionModes : testing::GpuTest {
  static std::vector<float> logits_of(const RunOptions& options) {
    Session session(options, device(), {.initialize = set_weights_by_rule});
    // The first runs of a mode that captures were within the constructor.
    EXPECT_EQ(session.step().loss, session.step().loss);
    return session.logits();
  }
};

TEST_F(VisionModes, ModesComputeTheSame) {
  const TemporaryCache cache;
  struct Case {
    const char *network, *dtype;
    double limit;  // of the error's root mean square, as a share of the logits'
  };
  for (const auto& [network, dtype, limit] : {Case{"resnet18", "fp32", 1e-4},
                                              {"mobilenet_v2", "bf16", 0.05},
                                              {"googlenet", "bf16", 0.05}}) {
    RunOptions options = network_options(network, Use::inference, "none", dtype);
    const std::vector<float> want = logits_of(options);
    double square = 0;
    for (const float x : want) square += double{x} * x / static_cast<double>(want.size());
    for (const std::string_view mode : compile_modes()) {
      options.version = mode;
      const std::vector<float> got = logits_of(options);
      double error = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double difference = got[i] - want[i];
        error += difference * difference / static_cast<double>(want.size());
      }
      EXPECT_LT(std::sqrt(error / square), limit) << network << ' ' << dtype << ' ' << mode;
    }
  }
}

// So that a choice made under one driver is not kept under the next.
TEST_F(VisionModes, ChoicesHoldForTheDriver) {
  EXPECT_THAT(measured_on(device()), ::testing::HasSubstr(", driver "));
  EXPECT_THAT(measured_on(device()), ::testing::StartsWith(device().hardware()));
}

}  // namespace
}  // namespace ridge
