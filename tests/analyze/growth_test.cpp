// The law of a peak's growth, which answers "how does its memory grow?".

#include <gtest/gtest.h>

#include "ridge/analyze/plan.h"
#include "ridge/cpu/device.h"

namespace ridge {
namespace {

RunOptions resolved(RunOptions options) {
  options.resolve();
  return options;
}

double peak_at(RunOptions options, std::int64_t RunOptions::*size, std::int64_t value) {
  CpuDevice device(1);
  options.*size = value;
  options.resolve();
  return static_cast<double>(plan_step(options, device).memory.peak_bytes);
}

double predicted(const GrowthLaw& law, std::int64_t size) {
  const auto x = static_cast<double>(size);
  return law.fixed + law.linear * x + law.quadratic * x * x;
}

// Between the sizes that it is made from: beyond them the peak may move to another node. Tensors
// are rounded up to 64 bytes, of which the law knows nothing.
TEST(GrowthLaws, FollowThePlansPeak) {
  CpuDevice device(1);
  RunOptions llama;
  llama.n_layers = 2;
  llama.batch_size = 16;  // from which on v4 has its peak at one node
  for (const char* version : {"v1", "v4"}) {
    llama.version = version;
    const std::vector<GrowthLaw> laws = growth_laws(resolved(llama), device);
    ASSERT_EQ(laws.size(), 2u);
    EXPECT_EQ(laws[0].of, "batch-size");
    EXPECT_EQ(laws[0].at, llama.batch_size);
    EXPECT_EQ(laws[0].to, 2 * llama.batch_size);
    for (const std::int64_t batch : {16, 22, 26, 32}) {
      const double peak = peak_at(llama, &RunOptions::batch_size, batch);
      EXPECT_NEAR(predicted(laws[0], batch) / peak, 1, 2e-3) << version << ", " << batch;
    }
    EXPECT_EQ(laws[1].of, "seq-len");
    for (const std::int64_t length : {128, 192, 256, 384}) {
      const double peak = peak_at(llama, &RunOptions::seq_len, length);
      EXPECT_NEAR(predicted(laws[1], length) / peak, 1, length % 128 == 0 ? 1e-9 : 3e-2)
          << version << ", " << length;
    }
  }
  // Scores are the square of the sequence; without them there is none.
  llama.version = "v1";
  EXPECT_GT(growth_laws(resolved(llama), device)[1].quadratic, 1000);
  llama.version = "v3";
  EXPECT_LT(std::abs(growth_laws(resolved(llama), device)[1].quadratic), 10);
}

// The peak of a small step is where the optimizer works, whatever the length: three lengths of
// which the first are such would make a parabola that falls.
TEST(GrowthLaws, BeginWhereThePeakGrows) {
  CpuDevice device(1);
  RunOptions llama;
  llama.version = "v1";
  llama.batch_size = 1;
  llama.seq_len = 64;
  const GrowthLaw law = growth_laws(resolved(llama), device)[1];
  EXPECT_GT(law.at, 64);
  EXPECT_GT(law.linear, 0);
  EXPECT_GT(law.quadratic, 0);
  EXPECT_NEAR(predicted(law, law.to) / peak_at(llama, &RunOptions::seq_len, law.to), 1, 1e-9);
}

TEST(GrowthLaws, OfImagesAreByTheBatchAlone) {
  CpuDevice device(1);
  RunOptions options = default_options("squeezenet1_1");
  options.mode = "inference";
  options.image_size = 64;
  options.batch_size = 16;
  const std::vector<GrowthLaw> laws = growth_laws(resolved(options), device);
  ASSERT_EQ(laws.size(), 1u);
  EXPECT_GT(laws[0].fixed, 4 * 1'235'496) << "the weights";
  EXPECT_NEAR(predicted(laws[0], 24) / peak_at(options, &RunOptions::batch_size, 24), 1, 1e-2);
}

}  // namespace
}  // namespace ridge
