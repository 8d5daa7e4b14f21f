#include "ridge/device/kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Kernel, IsOnePartUnlessItSaysOtherwise) {
  int launches = 0;
  const KernelPtr kernel = make_kernel([&](const Launch&) { ++launches; });
  EXPECT_THAT(kernel->late_outputs(), IsEmpty());
  kernel->launch_first({});
  kernel->launch_rest({});
  EXPECT_EQ(launches, 1);
}

TEST(Kernel, OfTwoPartsRunsThemTogetherOrApart) {
  std::vector<int> parts;
  const KernelPtr kernel = make_kernel([&](const Launch&) { parts.push_back(1); },
                                       [&](const Launch&) { parts.push_back(2); }, 3);
  EXPECT_THAT(kernel->late_outputs(), ElementsAre(3));
  kernel->launch({});
  EXPECT_THAT(parts, ElementsAre(1, 2));
  kernel->launch_first({});
  EXPECT_THAT(parts, ElementsAre(1, 2, 1));
  kernel->launch_rest({});
  EXPECT_THAT(parts, ElementsAre(1, 2, 1, 2));
}

}  // namespace
}  // namespace ridge
