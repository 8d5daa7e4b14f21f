#include "ridge/base/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace ridge {
namespace {

TEST(Units, ALossHasFourDigitsAndNoNegativeNan) {
  EXPECT_EQ(format_loss(6.97864), "6.9786");
  EXPECT_EQ(format_loss(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(format_loss(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace ridge
