// That gradients are handed out with the loss scale that they were computed with.

#include "ridge/session/gradient_reader.h"

#include <gtest/gtest.h>

#include "ridge/cpu/device.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

// The scale doubles in each step, before sums of several batches are read.
TEST(GradientReader, GivesTheScaleThatGradientsWereComputedWith) {
  for (const std::int64_t batches : {1, 2}) {
    SCOPED_TRACE(batches);
    RunOptions options = small_llama(one_layer);
    options.dtype = "fp16";
    options.loss_scale = 64;
    options.loss_scale_growth_interval = 1;
    options.gradient_accumulation_steps = batches;
    options.resolve();
    CpuDevice device(1);
    Session session(options, device);
    std::vector<float> scales;
    const GradientReader reader(session,
                                [&](std::size_t, Value, float scale) { scales.push_back(scale); });
    const StepReport report = session.step();
    EXPECT_EQ(report.next_loss_scale, 128);
    EXPECT_EQ(scales, std::vector<float>(session.training().parameters.size(), 64));
  }
}

}  // namespace
}  // namespace ridge
