#include "ridge/base/loop_nest.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

// Every part of a nest, however it is cut, sees each iteration once, in order, where it lies.
TEST(LoopNest, WalksAnyPartInRuns) {
  const LoopNest nests[] = {{{7, {1, 1}}},
                            {{3, {5, 0}}, {5, {1, 1}}},
                            {{2, {30, 6}}, {5, {6, 0}}, {3, {0, 2}}, {2, {1, 1}}}};
  for (const LoopNest& nest : nests)
    for (std::int64_t begin = 0; begin <= iterations(nest); ++begin)
      for (std::int64_t end = begin; end <= iterations(nest); ++end) {
        std::int64_t next = begin;
        for_each_run(nest, begin, end, [&](std::int64_t i, Offsets at, std::int64_t length) {
          EXPECT_EQ(i, next);
          EXPECT_EQ(at, offsets_at(nest, i));
          const std::int64_t left = nest.back().extent - i % nest.back().extent;
          EXPECT_EQ(length, std::min(end - i, left));
          next += length;
        });
        EXPECT_EQ(next, end);
      }
}

}  // namespace
}  // namespace ridge
