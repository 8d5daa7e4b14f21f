// What a training run does when its device fails, on devices that fail when told to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ridge/analyze/plan.h"
#include "ridge/cli/train_run.h"
#include "ridge/cpu/device.h"
#include "tests/base/temporary_cache.h"
#include "tests/base/temporary_directory.h"
#include "tests/run/failing_devices.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LossyDevice;
using ::testing::Not;
using testing::SmallDevice;

struct Ending {
  int exit_code = -1;   // -1 if it threw
  std::string message;  // of what it threw
  std::string out;
};

template <class Fault>
Ending end_of(const RunOptions& options, Device& device) {
  Ending ending;
  ::testing::internal::CaptureStdout();
  try {
    ending.exit_code = train(options, device);
  } catch (const Fault& error) {
    ending.message = error.what();
  }
  ending.out = ::testing::internal::GetCapturedStdout();
  return ending;
}

class Faults : public ::testing::TestWithParam<const char*> {
 protected:
  RunOptions options(const std::string& directory) const {
    RunOptions o = small_llama(one_layer);
    o.num_steps = 10;
    o.save_every = 4;
    o.learning_rate = 1e-2;
    o.threads = 1;
    o.version = GetParam();
    o.output_dir = (directory_.path / directory).string();
    o.resolve();
    return o;
  }
  static std::filesystem::path checkpoint(const RunOptions& o) {
    return std::filesystem::path(o.output_dir) / "checkpoint.safetensors";
  }
  static json summary(const RunOptions& o) {
    return json::parse(content(std::filesystem::path(o.output_dir) / "performance_summary.json"))
        .at("performance_summary");
  }
  // Goes on from a checkpoint on a sound device, to the checkpoint of the same run undisturbed.
  void expect_sound(const RunOptions& ended) {
    RunOptions o = ended;
    o.resume = checkpoint(ended).string();
    EXPECT_EQ(end_of<Error>(o, cpu_).message, "");
    RunOptions whole = options("whole");
    if (!std::filesystem::exists(checkpoint(whole))) end_of<Error>(whole, cpu_);
    EXPECT_TRUE(content(checkpoint(o)) == content(checkpoint(whole)));
  }

  TemporaryCache cache_;
  TemporaryDirectory directory_;
  CpuDevice cpu_{1};
};

// Wherever the device is lost, in a launch or unnoticed until the next wait, with one step in
// flight or two: the run ends with a line, and what it had done before is there.
TEST_P(Faults, LostDeviceLeavesTheCheckpointAndTheSummary) {
  LossyDevice sound(cpu_);
  ASSERT_EQ(end_of<Error>(options("sound"), sound).exit_code, 0);
  EXPECT_EQ(sound.blocks_held(), 0u);
  EXPECT_EQ(sound.captures() > 0, std::string(GetParam()) == "v4");
  const std::size_t all = sound.launches();
  for (const bool at_launch : {false, true})
    for (std::size_t lost = 0; lost < all; lost += all / 7 + 1) {
      SCOPED_TRACE(fmt::format("after {} of {} launches", lost, all));
      const RunOptions o = options(fmt::format("lost-{}-{}", lost, at_launch));
      LossyDevice device(cpu_, lost, at_launch);
      const Ending ending = end_of<DeviceError>(o, device);
      EXPECT_EQ(ending.exit_code, -1);
      EXPECT_EQ(device.blocks_held(), 0u);
      EXPECT_THAT(ending.message, HasSubstr("uncorrectable ECC error"));
      EXPECT_THAT(ending.out, HasSubstr("The device failed\n"));
      const json record = summary(o);
      EXPECT_EQ(record["outcome"], "failed");
      const auto steps = record["losses"].size();
      EXPECT_LT(steps, 10u);
      if (steps < 4) {
        EXPECT_THAT(ending.message, HasSubstr("nothing was saved yet (--save-every 4)"));
        EXPECT_FALSE(std::filesystem::exists(checkpoint(o)));
        continue;
      }
      if (!std::filesystem::exists(checkpoint(o))) {  // lost while it was saved
        EXPECT_THAT(ending.message, HasSubstr("nothing was saved"));
        continue;
      }
      EXPECT_THAT(ending.message,
                  AllOf(HasSubstr("is intact: go on with --resume"),
                        HasSubstr(fmt::format("the checkpoint of step {}", steps < 8 ? 4 : 8))));
      expect_sound(o);
    }
}

// What was recorded before is there too.
TEST_P(Faults, LostDeviceLeavesTheProfileOfTheStepsBefore) {
  RunOptions o = options("profiled");
  o.enable_pytorch_profiler = true;
  o.profile_dir = (directory_.path / "profile").string();
  LossyDevice sound(cpu_);
  ASSERT_EQ(end_of<Error>(options("sound"), sound).exit_code, 0);
  LossyDevice device(cpu_, sound.launches() - 1, true);
  const Ending ending = end_of<DeviceError>(o, device);
  EXPECT_THAT(ending.message, HasSubstr("uncorrectable ECC error"));
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("The device failed\n"), HasSubstr("Profiling complete!")));
  const json operators =
      json::parse(content(std::filesystem::path(o.profile_dir) / "operators.json"));
  EXPECT_EQ(operators["first_step"], 5);
}

TEST_P(Faults, FailingLaunchIsThatOfANamedOperator) {
  LossyDevice device(cpu_, 3, true);
  EXPECT_THAT(end_of<DeviceError>(options("named"), device).message,
              AllOf(HasSubstr(" of layers.0"), HasSubstr("(forward): the GPU failed")));
}

// The signal comes while the run waits for a step, with the next in flight or not.
TEST_P(Faults, InterruptEndsTheStepsInFlightAndSaves) {
  for (const int at : {1, 2, 4, 7}) {
    SCOPED_TRACE(at);
    LossyDevice device(cpu_);
    int waits = 0;
    device.on_wait = [&] {
      if (++waits == at) ::raise(SIGINT);
    };
    const RunOptions o = options(fmt::format("interrupted-{}", at));
    const Ending ending = end_of<Error>(o, device);
    EXPECT_EQ(ending.exit_code, 130) << ending.message;
    EXPECT_THAT(ending.out, AllOf(HasSubstr("Interrupted\n"), HasSubstr("Saved ")));
    const json record = summary(o);
    EXPECT_EQ(record["outcome"], "interrupted");
    EXPECT_GE(record["losses"].size(), static_cast<std::size_t>(at));
    EXPECT_LE(record["losses"].size(), static_cast<std::size_t>(at) + 1);
    expect_sound(o);
  }
  std::signal(SIGTERM, SIG_DFL);
}

// The batch that a message says would fit.
std::int64_t batch_in(const std::string& message) {
  const std::string before = "--batch-size ";
  const auto at = message.find(before);
  return at == std::string::npos ? 0 : std::stoll(message.substr(at + before.size()));
}

TEST_P(Faults, OutOfMemorySaysWhoHoldsItAndWhatWouldFit) {
  RunOptions o = options("small");
  o.hidden_dim = 32;
  o.intermediate_dim = 64;
  o.seq_len = 256;
  o.num_steps = 2;
  o.batch_size = 40;
  const std::size_t bytes = plan_step(o, cpu_).memory.peak_bytes;
  o.batch_size = 400;
  // Known beforehand, and not: another program took what had been there.
  for (const std::size_t claimed : {std::size_t{0}, 20 * bytes}) {
    SCOPED_TRACE(claimed);
    SmallDevice device(cpu_, bytes + (std::size_t{2} << 20), claimed);
    const Ending ending = end_of<OutOfMemoryError>(o, device);
    EXPECT_THAT(ending.message, AllOf(HasSubstr("parameters "), HasSubstr("optimizer state ")));
    EXPECT_EQ(device.held(), 0u);
    if (claimed == 0) {
      EXPECT_THAT(ending.message,
                  AllOf(HasSubstr("intermediates "), HasSubstr("would fit in the ")));
      RunOptions fitting = o;
      fitting.batch_size = batch_in(ending.message);
      EXPECT_GT(fitting.batch_size, 1);
      EXPECT_EQ(end_of<Error>(fitting, device).message, "");
    }
  }
}

TEST_P(Faults, OutOfMemoryOfAModelThatNoBatchMakesFit) {
  SmallDevice device(cpu_, 10'000, 0);
  EXPECT_THAT(end_of<OutOfMemoryError>(options("huge"), device).message,
              AllOf(HasSubstr("use a smaller batch, sequence or model"),
                    HasSubstr("not even a batch of 1 fits")));
}

INSTANTIATE_TEST_SUITE_P(Versions, Faults, ::testing::Values("v1", "v3", "v4"),
                         [](const auto& version) { return std::string(version.param); });

}  // namespace
}  // namespace ridge
