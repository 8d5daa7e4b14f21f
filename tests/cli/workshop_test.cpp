// The workshop's command lines write the files and print the sections that its pages promise.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/cli/measured_machine.h"
#include "tests/cli/workshop_commands.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

bool has(const Words& command, const std::string& flag) {
  return std::ranges::find(command, flag) != command.end();
}

std::string value_of(const Words& command, const std::string& flag, const std::string& otherwise) {
  const auto at = std::ranges::find(command, flag);
  return at == command.end() ? otherwise : *(at + 1);
}

bool profiles(const Words& command) {
  for (const char* flag : {"--enable-pytorch-profiler", "--profile-memory", "--profile-operators",
                           "--enable-deepspeed-flops", "--enable-all-profiling", "--profile-steps"})
    if (has(command, flag)) return true;
  return false;
}

// Steps 5 to 10; those after the warm-up in a run that ends before; the one whose FLOPs were asked
// for.
std::string profiled_steps(const Words& command) {
  if (has(command, "--enable-deepspeed-flops")) return "10_10";
  if (value_of(command, "--profile-steps", "5") == "2") return "5_7";
  return value_of(command, "--num-steps", "50") == "5" ? "4_5" : "5_10";
}

std::vector<std::string> files_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

void expect_profile(const Sandbox& sandbox, const Words& command, const std::string& out) {
  const std::string directory = value_of(command, "--profile-dir", "profiles");
  std::vector<std::string> names = files_in(sandbox.path(directory));
  std::set<std::string> listed;
  for (const std::string& line : lines_of(out))
    if (line.starts_with("  - ")) listed.insert(fs::path(line.substr(4)).filename());
  EXPECT_EQ(listed, std::set<std::string>(names.begin(), names.end())) << "the list it prints";
  for (const std::string& name : names)
    EXPECT_GT(fs::file_size(sandbox.path(directory) / name), 0u) << name;

  std::vector<::testing::Matcher<std::string>> expected{
      "bottlenecks.json",
      "config.json",
      MatchesRegex("events\\.out\\.tfevents\\..+"),
      "kernel_stats.csv",
      "kernel_trace.csv",
      "memory.json",
      "memory_timeline.json",
      "memory_timeline.svg",
      "modules.json",
      "nodes.json",
      "operators.csv",
      "operators.json",
      "performance_summary.json",
      "speed_of_light.json",
      "trace.pftrace",
      "trace_step_" + profiled_steps(command) + ".json",
      MatchesRegex(".+_[0-9]+\\.[0-9]+\\.pt\\.trace\\.json")};
  if (has(command, "--enable-all-profiling")) expected.emplace_back("system.json");
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(expected));
  const auto events =
      std::ranges::find_if(names, [](const auto& n) { return n.starts_with("events."); });
  ASSERT_NE(events, names.end());
  const std::string scalars = sandbox.read(directory + "/" + *events);
  for (const char* tag : {"train/loss", "time/step_ms", "throughput/tokens_per_second",
                          "memory/live_mb", "throughput/mfu_percent"})
    EXPECT_THAT(scalars, HasSubstr(tag));
}

void expect_sections(const Words& command, const std::string& out) {
  EXPECT_THAT(out, HasSubstr(" (Profiling Enabled)\n"));
  EXPECT_THAT(out, ContainsRegex("\nProfiling enabled: Steps [0-9]+-[0-9]+\n"));
  EXPECT_THAT(out, HasSubstr("\nProfile data will be saved to: "));
  EXPECT_THAT(out, ContainsRegex(" seconds[^\n]* \\[PROFILING\\]\n"));
  EXPECT_THAT(out, HasSubstr("\nOverhead of recording: "));
  if (has(command, "--enable-pytorch-profiler")) {
    EXPECT_THAT(out, ContainsRegex("\nTop Operations by Total Time:\n"));
    EXPECT_THAT(out, HasSubstr("\nQuestions:\n"));
  }
  if (has(command, "--profile-operators")) {
    EXPECT_THAT(out, ContainsRegex("(Top|All) Modules by"));
  }
  if (has(command, "--profile-memory")) {
    for (const char* line :
         {"Memory Profiling Enabled", "Memory Analysis Summary:", "Peak Memory Usage: ",
          "Average Memory Usage: ", "Memory at Forward Pass: ", "Memory at Backward Pass: ",
          "Memory at Optimizer Step: ", "Number of Allocations: ", "Largest Tensor: "})
      EXPECT_THAT(out, HasSubstr("\n" + std::string(line)));
    EXPECT_THAT(out, ContainsRegex("Loss = [0-9.]+, Time = [0-9.]+ seconds, Memory = [0-9.]+ MB"));
  }
  if (has(command, "--enable-deepspeed-flops")) {
    EXPECT_THAT(out, HasSubstr("Ridge FLOPs Profiler"));
    EXPECT_THAT(out, HasSubstr("Profile Summary at step 10:"));
  }
}

// The bottleneck report and the utilization are there on every machine.
TEST(WorkshopFiles, AreThoseThatTheLinesPromise) {
  const MeasuredMachine machine;
  std::size_t profiled = 0;
  for (const Words& command : workshop_commands()) {
    SCOPED_TRACE(::testing::PrintToString(command));
    Words line = command;
    line.insert(line.end(), tiny_flags.begin(), tiny_flags.end());
    const Sandbox sandbox;
    const ProgramResult result = sandbox.run(line);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(files_in(sandbox.path("output")),
                ::testing::ElementsAre("config.json", "performance_summary.json"));
    if (profiles(command)) {
      ++profiled;
      expect_profile(sandbox, command, result.out);
      expect_sections(command, result.out);
    } else {
      EXPECT_THAT(files_in(sandbox.path("")), ::testing::ElementsAre("output"));
      EXPECT_THAT(result.out, Not(HasSubstr("[PROFILING]")));
    }
    if (::testing::Test::HasFailure()) break;  // the others would say the same
  }
  EXPECT_EQ(profiled, 14u);
}

}  // namespace
}  // namespace ridge
