// `ridge bench` on a GPU: every compile mode computes what operator by operator is computed.

#include "ridge/bench/session.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ridge/bench/schedule.h"
#include "ridge/run/autotuner.h"
#include "tests/base/temporary_cache.h"
#include "tests/gpu/gpu.h"
#include "tests/models/vision_rule.h"

namespace ridge {
namespace {

struct Bench : testing::GpuTest {
  static std::vector<float> logits_of(const BenchOptions& options) {
    BenchSession session(options, device(), {.rewrite = set_weights_by_rule});
    // The first runs of a mode that captures were within the constructor.
    EXPECT_EQ(session.iterate().loss, session.iterate().loss);
    return session.executor().read_floats(session.model().logits);
  }
};

TEST_F(Bench, ModesComputeTheSame) {
  const TemporaryCache cache;
  struct Case {
    const char *network, *dtype;
    double limit;  // of the error's root mean square, as a share of the logits'
  };
  for (const auto& [network, dtype, limit] : {Case{"resnet18", "fp32", 1e-4},
                                              {"mobilenet_v2", "bf16", 0.05},
                                              {"googlenet", "bf16", 0.05}}) {
    BenchOptions options{.network = network, .batch_size = 4, .image_size = 64, .dtype = dtype};
    const std::vector<float> want = logits_of(options);
    double square = 0;
    for (const float x : want) square += double{x} * x / static_cast<double>(want.size());
    for (const CompileMode& mode : compile_modes()) {
      options.compile = mode.name;
      const std::vector<float> got = logits_of(options);
      double error = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double difference = got[i] - want[i];
        error += difference * difference / static_cast<double>(want.size());
      }
      EXPECT_LT(std::sqrt(error / square), limit) << network << ' ' << dtype << ' ' << mode.name;
    }
  }
}

// So that a choice made under one driver is not kept under the next.
TEST_F(Bench, ChoicesHoldForTheDriver) {
  EXPECT_THAT(measured_on(device()), ::testing::HasSubstr(", driver "));
  EXPECT_THAT(measured_on(device()), ::testing::StartsWith(device().hardware()));
}

}  // namespace
}  // namespace ridge
