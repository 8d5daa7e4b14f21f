// A trial repeats a candidate less often in one graph the more nodes a launch of it has, and leaves
// out those that have too many.

#include "ridge/gpu/device/trial.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "ridge/device/tuner.h"
#include "ridge/gpu/device/api.h"
#include "tests/gpu/gpu.h"

namespace ridge::gpu {
namespace {

class Trials : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    device();  // which begins the use of the card
    check(api::stream_create_with_priority(&gpu_.stream, 0), "making a stream");
  }
  void TearDown() override {
    if (gpu_.stream) api::ignore(api::stream_destroy(gpu_.stream));
  }

  // Returns how often a trial enqueues work of so many nodes until it can replay it.
  int enqueued(Trial& trial, std::size_t candidate, int nodes) {
    int count = 0;
    const auto work = [&](const Trial::Operands& operands) {
      ++count;
      for (int i = 0; i < nodes; ++i)
        check(api::memset_async(operands[0], i, 64, gpu_.stream), "a fill");
    };
    trial.run(candidate, work);
    const int first = count;
    trial.run(candidate, work);
    EXPECT_EQ(count, first) << "it was not replayed";
    return first;
  }

  Context gpu_;
};

// Work is enqueued once to load its code, once to count its nodes, and then as often as its graph
// repeats it.
TEST_F(Trials, RepeatLongWorkInTheirGraphLessOften) {
  Trial trial(gpu_, {64});
  EXPECT_EQ(enqueued(trial, 0, 1), 2 + 8);
  EXPECT_EQ(enqueued(trial, 1, 100), 2 + 2);
}

// A library that convolves each group of channels by kernels of its own gives such work.
TEST_F(Trials, LeaveOutWorkOfHundredsOfKernels) {
  Trial trial(gpu_, {64});
  EXPECT_THROW(enqueued(trial, 0, 300), Tuner::NoSuchCandidate);
  EXPECT_EQ(enqueued(trial, 1, 1), 2 + 8);
}

}  // namespace
}  // namespace ridge::gpu
