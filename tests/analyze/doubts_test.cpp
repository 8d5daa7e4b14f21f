// Ceilings that cannot be right are not taken for the machine's without a word.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/analyze/ceilings.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Ceilings of_two_cores(double one, double all) {
  Ceilings ceilings{.hardware = "a CPU", .threads = 2};
  ceilings.compute.push_back(
      {.instructions = "AVX2", .precision = ProductKind::f32, .one_core = one, .all_cores = all});
  ceilings.bandwidth.push_back({.level = "memory", .one_core = 1e10, .all_cores = 1.5e10});
  return ceilings;
}

TEST(Doubts, AreOfCoresThatTogetherDoNoMoreThanOne) {
  EXPECT_EQ(of_two_cores(1e11, 1.9e11).doubts(), "");
  const Ceilings busy = of_two_cores(1e11, 0.8e11);
  EXPECT_THAT(busy.doubts(), AllOf(HasSubstr("2 threads together reached 0.80 times"),
                                   HasSubstr("f32"), HasSubstr("measure again")));
  EXPECT_EQ(roof_of(busy, 2).doubts, busy.doubts()) << "whoever uses the ceilings is told";
  EXPECT_THAT(ceilings_text(busy), HasSubstr(busy.doubts()));
}

TEST(Doubts, LeaveWithABetterMeasurement) {
  EXPECT_EQ(best_of(of_two_cores(1e11, 1.9e11), of_two_cores(1e11, 0.8e11)).doubts(), "");
}

TEST(Doubts, AreOfWhatDisturbedTheMeasurement) {
  Ceilings ceilings = of_two_cores(1e11, 1.9e11);
  ceilings.note = "the clock was at 1000 to 2000 MHz";
  EXPECT_EQ(ceilings.doubts(), ceilings.note);
  ceilings = of_two_cores(1e11, 0.8e11);
  ceilings.threads = 1;
  EXPECT_EQ(ceilings.doubts(), "") << "one thread has no others";
}

}  // namespace
}  // namespace ridge
