#include "ridge/session/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(PublishedRun, IsFoundByItsOptions) {
  RunOptions options;
  options.resolve();
  const auto tiny = published_run(options);
  ASSERT_TRUE(tiny);
  EXPECT_EQ(tiny->samples_per_second, 177.8);
  EXPECT_EQ(tiny->hardware, "AMD Instinct MI250X");
  Record record{.options = options, .peak_tensor_bytes = 284'700'000};
  record.system.device = "cpu";
  record.system.cpu = "AMD EPYC";
  EXPECT_THAT(comparison_text(*tiny, record, {.samples_per_second = 88.9}),
              ::testing::HasSubstr("0.5 times its rate with 0.1 times its memory, in fp32 on AMD"));
  options.batch_size = 9;
  EXPECT_FALSE(published_run(options)) << "every row is read";
}

}  // namespace
}  // namespace ridge
