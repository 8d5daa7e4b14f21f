// `ridge bench` on a GPU: every compile mode computes what operator by operator is computed.

#include <gmock/gmock.h>

#include <cmath>

#include "ridge/analyze/verify.h"
#include "ridge/gpu/device/memory.h"
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

// Kernels of ours let the next one begin while they are at work, and a convolution that cuDNN
// generates reads its weights before it waits: here these are folded and transposed just before it,
// in every pass, where folded weights are not kept. Kernels meet only where the host is ahead of
// the card, which therefore clears memory first.
TEST_F(VisionModes, VendorsConvolutionsReadWeightsThatWereJustComputed) {
  const TemporaryCache cache;
  constexpr std::size_t bytes = std::size_t{2} << 30;
  const gpu::DeviceMemory much(bytes);
  for (const std::string_view version : {"v3", "v4 - frozen-weights"})
    for (const std::string_view dtype : {"tf32", "fp16", "bf16"}) {
      RunOptions options = small_options("regnet_y_400mf");
      options.mode = name_of(Use::inference);
      schedule_named(version).apply_to(options);
      options.dtype = dtype;
      options.resolve();
      Session session(options, device());
      const float first = session.step().loss;
      for (int pass = 1; pass < 50; ++pass) {
        for (int i = 0; i < 10; ++i) device().clear(much.data<void>(), bytes);
        ASSERT_NEAR(session.step().loss, first, 1e-3)
            << version << ' ' << dtype << ", pass " << pass;
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
