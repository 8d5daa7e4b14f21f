#include "ridge/base/processor_use.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

TEST(BusyProcessors, AreThoseThatThisProgramDoesNotUse) {
  const ProcessorUse begin{.wall = 10, .own = 3, .busy = 100};
  EXPECT_DOUBLE_EQ(*busy_processors_of_others(begin, {.wall = 14, .own = 5, .busy = 108}), 1.5);
  EXPECT_DOUBLE_EQ(*busy_processors_of_others(begin, {.wall = 14, .own = 9, .busy = 104}), 0);
  EXPECT_FALSE(busy_processors_of_others(begin, {.wall = 10.01, .own = 3, .busy = 100}));
  EXPECT_FALSE(busy_processors_of_others(begin, {.wall = 14, .own = 5, .busy = {}}));
}

TEST(ProcessSeconds, AreSummedOverTheProcessesOfAHost) {
  const ProcessSeconds here = ProcessSeconds::of_this_process(2);
  ProcessSeconds beside = here, elsewhere = here;
  beside.process += 1;
  beside.seconds = 5;
  elsewhere.host = {"another"};
  elsewhere.process += 2;
  EXPECT_DOUBLE_EQ(seconds_on_host(std::vector{here, here, beside, elsewhere}, here), 7);
  EXPECT_DOUBLE_EQ(seconds_on_host(std::vector{here, beside, elsewhere}, elsewhere), 2);
}

}  // namespace
}  // namespace ridge
