#include "ridge/study/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ridge/base/system.h"
#include "ridge/base/version.h"
#include "ridge/cpu/device.h"

namespace ridge {
namespace {

using ::testing::ContainsRegex;
using ::testing::MatchesRegex;

RunOptions tiny_options() {
  RunOptions o{
      .hidden_dim = 16, .n_layers = 1, .n_heads = 2, .batch_size = 2, .seq_len = 8, .threads = 1};
  o.vocab_size = 32;
  o.resolve();
  return o;
}

TEST(Fingerprint, IsOfTheMachineAndTheCoresUsed) {
  CpuDevice device(1);
  const auto machine = machine_json(device, tiny_options());
  EXPECT_EQ(machine["cpu"], processor_name());
  EXPECT_EQ(machine["cores"], 1);
  EXPECT_THAT(machine["libraries"]["oneDNN"], ContainsRegex("^[0-9]+\\.[0-9]+\\.[0-9]+$"));
  EXPECT_FALSE(machine.contains("gpu"));
  EXPECT_EQ(machine, machine_json(device, tiny_options())) << "whatever the load";
}

TEST(Fingerprint, IsOfTheProgram) {
  const auto program = program_json();
  EXPECT_EQ(program["version"], version());
  EXPECT_THAT(std::string(program["commit"]), MatchesRegex("([0-9a-f]{40}[+]?)?"));
  EXPECT_THAT(std::string(program["binary"]), MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(program, program_json());
}

TEST(Fingerprint, CountsTheKernelsOfAStep) {
  CpuDevice device(1);
  RunOptions options = tiny_options();
  Session session(options, device);
  const std::int64_t one = kernels_of_step(session);
  EXPECT_EQ(one, static_cast<std::int64_t>(session.executor().launches()));
  options.gradient_accumulation_steps = 3;
  Session accumulating(options, device);
  const auto optimizer =
      static_cast<std::int64_t>(accumulating.executor().launches(Phase::optimizer));
  const auto all = static_cast<std::int64_t>(accumulating.executor().launches());
  EXPECT_GT(optimizer, 0);
  EXPECT_EQ(kernels_of_step(accumulating), 3 * (all - optimizer) + optimizer);
}

TEST(Fingerprint, SeesTheLoadOfOthersAndNotItsOwn) {
  CpuDevice device(1);
  ConditionsWatch watch(device);
  double sum = 0;
  for (const auto begin = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(300);)
    sum += 1;
  EXPECT_GT(sum, 0);
  const auto conditions = watch.stop();
  EXPECT_GE(conditions["load_average"], 0);
  EXPECT_GE(conditions["busy_cores_of_others"], 0);
  EXPECT_LE(conditions["busy_cores_of_others"], 1e4);
  EXPECT_FALSE(conditions.contains("gpu"));
}

TEST(Fingerprint, GoesIntoTheContextOfARun) {
  CpuDevice device(1);
  Session session(tiny_options(), device);
  ConditionsWatch watch(device);
  const auto context = context_json(session, watch);
  for (const char* part : {"machine", "program", "conditions", "kernels_per_step"})
    EXPECT_TRUE(context.contains(part)) << part;
  EXPECT_EQ(context["input_shape"], (nlohmann::ordered_json{2, 8}));
}

}  // namespace
}  // namespace ridge
