// Which steps of a run are recorded.

#include "ridge/profile/step_recorder.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

RunOptions profiled(std::int64_t num_steps) {
  RunOptions o;
  o.enable_pytorch_profiler = true;
  o.num_steps = num_steps;
  o.warmup_steps = 3;
  return o;
}

void expect_window(const ProfileWindow& window, std::int64_t first, std::int64_t last) {
  EXPECT_EQ(window.first, first);
  EXPECT_EQ(window.last, last);
}

TEST(ProfileWindow, OfTrainingIsTheWorkshops) {
  expect_window(profile_window(profiled(50)), 5, 10);
  RunOptions more = profiled(50);
  more.profile_steps = 20;
  expect_window(profile_window(more), 5, 25);
  EXPECT_FALSE(recorder_config(RunOptions{}).has_value()) << "nothing was asked for";
}

TEST(ProfileWindow, OfAShortRunIsItsEndWithoutTheWarmUp) {
  expect_window(profile_window(profiled(8)), 4, 8);
  expect_window(profile_window(profiled(5)), 4, 5);
  expect_window(profile_window(profiled(2)), 2, 2);
}

TEST(ProfileWindow, IsTheUsualOneIfOnlyTheSystemIsAskedFor) {
  RunOptions o;
  o.profile_system = true;
  o.profile_system_interval = 7;
  o.num_steps = 50;
  expect_window(profile_window(o), 5, 10);
  EXPECT_EQ(recorder_config(o)->system_interval, std::chrono::milliseconds(7));
  EXPECT_FALSE(recorder_config(profiled(50))->system_interval) << "it was not asked for";
  RunOptions all = profiled(50);
  all.enable_all_profiling = true;
  EXPECT_EQ(recorder_config(all)->system_interval, std::chrono::milliseconds(20));
}

// A GPU counts after the window; of a run that is too short for both, the last steps are recorded.
TEST(ProfileWindow, LeavesStepsToCountIn) {
  const auto counted = [](std::int64_t num_steps) {
    RunOptions o = profiled(num_steps);
    o.counters = true;
    o.device = "cuda";
    return o;
  };
  expect_window(profile_window(counted(50)), 5, 10);
  expect_window(profile_window(counted(11)), 4, 8);
  expect_window(profile_window(counted(8)), 4, 5);
  expect_window(profile_window(counted(5)), 4, 4);
  expect_window(profile_window(counted(2)), 2, 2);
  RunOptions late = counted(50);
  late.warmup_steps = 20;
  expect_window(profile_window(late), 10, 10);
  RunOptions benchmark = counted(20);
  benchmark.warmup_steps = 5;
  const BenchmarkRecording operators{.operators = true};
  expect_window(recorder_config(benchmark, operators)->window, 18, 22);
  benchmark.num_steps = 6;
  expect_window(recorder_config(benchmark, operators)->window, 9, 9);
  benchmark.enable_all_profiling = true;
  benchmark.counters = false;
  expect_window(recorder_config(benchmark, operators)->window, 9, 9);
  benchmark.device = "cpu";  // which counts in the steps that are recorded
  expect_window(recorder_config(benchmark, operators)->window, 9, 11);
}

TEST(ProfileWindow, HasTheStepWhoseFlopsAreAskedFor) {
  RunOptions o = profiled(50);
  o.enable_deepspeed_flops = true;
  for (const auto& [step, first, last] :
       {std::array<std::int64_t, 3>{7, 5, 10}, {2, 2, 7}, {30, 25, 30}, {99, 45, 50}}) {
    o.flops_profile_step = step;
    expect_window(profile_window(o), first, last);
  }
  o.enable_pytorch_profiler = false;
  expect_window(profile_window(o), 50, 50);
}

// Iterations are counted from 0, after those that warm up.
TEST(ProfileWindow, OfABenchmarkIsTheLastIterations) {
  RunOptions o;
  o.num_steps = 20;
  o.warmup_steps = 5;
  const auto config = [&](const BenchmarkRecording& asked) { return recorder_config(o, asked); };
  EXPECT_FALSE(config({}).has_value());
  const StepRecorder::Config last = config({.operators = true}).value();
  expect_window(last.window, 21, 25);
  EXPECT_EQ(last.name_of_step(last.window.first), "iteration 15");
  expect_window(config({.flops_iteration = 10})->window, 16, 16);
  expect_window(config({.operators = true, .flops_iteration = 10})->window, 16, 20);
  expect_window(config({.operators = true, .flops_iteration = 17})->window, 21, 25);
  o.profile_steps = 8;
  expect_window(config({.operators = true})->window, 18, 25);
  o.num_steps = 4;
  expect_window(config({.operators = true})->window, 8, 9);
  EXPECT_EQ(recorder_config(profiled(9))->name_of_step(4), "step 4");
}

}  // namespace
}  // namespace ridge
