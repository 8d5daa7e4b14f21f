#include "ridge/cpu/rotations.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ridge {
namespace {

TEST(RotationTables, ShareATableWhileSomeoneUsesIt) {
  RotationTables tables;
  std::shared_ptr<Rotations> first = tables.get(100.0f, 3, 5);
  EXPECT_EQ(tables.get(100.0f, 3, 5), first);
  EXPECT_NE(tables.get(200.0f, 3, 5), first);
  EXPECT_NE(tables.get(100.0f, 4, 5), first);
  EXPECT_NE(tables.get(100.0f, 3, 6), first);
  const std::weak_ptr<Rotations> watch = first;
  first.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(RotationTables, HoldTheAnglesOnceFilled) {
  RotationTables tables;
  const auto table = tables.get(100.0f, 3, 5);
  EXPECT_EQ(table->cos(), nullptr);  // costs nothing before
  table->fill();
  for (int s = 0; s < 5; ++s)
    for (int i = 0; i < 3; ++i) {
      const double angle = s * std::pow(100.0, -i / 3.0);
      EXPECT_EQ(table->cos()[s * 3 + i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(table->sin()[s * 3 + i], static_cast<float>(std::sin(angle)));
    }
}

}  // namespace
}  // namespace ridge
