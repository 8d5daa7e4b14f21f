#include "ridge/profile/operator_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

// The reference is the recording itself, change by change.
TEST(OperatorMemory, IsAllThatWasAllocatedWithinTheSteps) {
  const RealRecording run;
  const Recording& recording = run.recording();
  std::uint64_t results = 0, workspace = 0;
  std::int64_t allocations = 0;
  for (const Recording::MemoryChange& change : recording.memory) {
    if (change.bytes <= 0 || change.step == 0) continue;
    (change.workspace ? workspace : results) += static_cast<std::uint64_t>(change.bytes);
    ++allocations;
  }
  const std::vector<OperatorMemory> rows = operator_memory(recording);
  std::uint64_t counted_results = 0, counted_workspace = 0, before = ~std::uint64_t{0};
  std::int64_t counted = 0;
  for (const OperatorMemory& row : rows) {
    counted_results += row.results;
    counted_workspace += row.workspace;
    counted += row.allocations;
    EXPECT_LE(row.largest, row.all());
    EXPECT_LE(row.all(), before) << "the most bytes first";
    before = row.all();
  }
  EXPECT_GT(results, 0u);
  EXPECT_EQ(counted_results, results);
  EXPECT_EQ(counted_workspace, workspace);
  EXPECT_EQ(counted, allocations);
  EXPECT_THAT(operator_memory_text(recording, 2), ::testing::HasSubstr(" more operations\n"));
}

}  // namespace
}  // namespace ridge
