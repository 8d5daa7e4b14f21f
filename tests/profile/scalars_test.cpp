#include "ridge/profile/scalars.h"

#include <gtest/gtest.h>

#include <map>

#include "ridge/profile/memory_report.h"
#include "tests/profile/real_recording.h"

namespace ridge {
namespace {

std::map<std::string, double> by_tag(const std::vector<Scalar>& scalars) {
  std::map<std::string, double> values;
  for (const Scalar& scalar : scalars)
    EXPECT_TRUE(values.emplace(scalar.tag, scalar.value).second) << scalar.tag;
  return values;
}

Recording::MemoryChange change(std::int64_t time_ns, std::uint64_t live) {
  Recording::MemoryChange result{};
  result.time_ns = time_ns;
  result.live = live;
  return result;
}

TEST(MemoryByStep, AveragesOverTimeAndKeepsThePeak) {
  Recording recording;
  recording.steps = {{.step = 5, .begin_ns = 100, .end_ns = 200, .loss = 1},
                     {.step = 6, .begin_ns = 300, .end_ns = 400, .loss = 1}};
  // 10 bytes when the first step begins, 50 for a quarter of it; 90 between the steps; 20 at last.
  recording.memory = {change(0, 70),   change(100, 10), change(125, 50), change(150, 10),
                      change(220, 90), change(290, 30), change(350, 20)};
  const std::vector<StepMemory> memory = memory_by_step(recording);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].step, 5);
  EXPECT_DOUBLE_EQ(memory[0].average, 20);
  EXPECT_EQ(memory[0].peak, 50u);
  EXPECT_EQ(memory[1].step, 6);
  EXPECT_DOUBLE_EQ(memory[1].average, 25);
  EXPECT_EQ(memory[1].peak, 30u);

  recording.dropped = 1;
  EXPECT_TRUE(memory_by_step(recording).empty());
}

TEST(MemoryByStep, AgreesWithTheReportOfARun) {
  const RealRecording run;
  const MemoryReport report = memory_report(run.recording());
  std::uint64_t peak = 0;
  for (const StepMemory& step : memory_by_step(run.recording())) {
    peak = std::max(peak, step.peak);
    EXPECT_GT(step.average, 0);
    EXPECT_LT(step.average, static_cast<double>(step.peak));
  }
  EXPECT_EQ(peak, report.peak);
}

TEST(StepScalars, HaveWhatIsKnownOfAStepAndNothingElse) {
  const StepReport step{
      .step = 3, .loss = 2.5, .seconds = 0.2, .forward_seconds = 0.05, .live_bytes = 3'000'000};
  const auto plain = by_tag(step_scalars(step, 8, 128, nullptr, std::nullopt));
  EXPECT_EQ(plain.at("train/loss"), 2.5);
  EXPECT_DOUBLE_EQ(plain.at("time/forward_ms"), 50);
  EXPECT_DOUBLE_EQ(plain.at("throughput/samples_per_second"), 40);
  EXPECT_DOUBLE_EQ(plain.at("throughput/tokens_per_second"), 5120);
  EXPECT_DOUBLE_EQ(plain.at("memory/live_mb"), 3);
  for (const char* tag :
       {"throughput/mfu_percent", "memory/average_mb", "memory/peak_mb", "train/grad_norm"})
    EXPECT_FALSE(plain.contains(tag)) << tag;

  const auto of_images = by_tag(step_scalars(step, 8, 0, nullptr, std::nullopt));
  EXPECT_DOUBLE_EQ(of_images.at("throughput/samples_per_second"), 40);
  EXPECT_FALSE(of_images.contains("throughput/tokens_per_second")) << "an image has none";

  const StepMemory memory{.step = 3, .average = 1.5e6, .peak = 4'000'000};
  StepReport overlapping = step;
  overlapping.has_phases = false;
  EXPECT_FALSE(
      by_tag(step_scalars(overlapping, 8, 128, nullptr, std::nullopt)).contains("time/backward_ms"))
      << "nobody timed it";

  const auto full = by_tag(step_scalars(step, 8, 128, &memory, 0.05));
  EXPECT_DOUBLE_EQ(full.at("throughput/mfu_percent"), 25);
  EXPECT_DOUBLE_EQ(full.at("memory/average_mb"), 1.5);
  EXPECT_DOUBLE_EQ(full.at("memory/peak_mb"), 4);
}

TEST(StepScalars, NeverShowAnMfuAbove100) {
  const StepReport step{.step = 1, .seconds = 0.1};
  EXPECT_EQ(by_tag(step_scalars(step, 1, 0, nullptr, 0.15)).at("throughput/mfu_percent"), 100);
}

}  // namespace
}  // namespace ridge
