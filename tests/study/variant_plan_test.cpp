#include "ridge/study/variant_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "ridge/analyze/plan.h"
#include "ridge/cpu/device.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::MatchesRegex;

class MemoryPassesOfARun : public ::testing::Test {
 protected:
  MemoryPassesOfARun() {
    options.seq_len = 64;
    options.resolve();
  }
  std::size_t bytes(const std::string& version, const std::string& recompute) {
    RunOptions with = options;
    with.version = version;
    with.recompute = recompute;
    with.resolve();
    return plan_step(with, device).device_bytes;
  }

  CpuDevice device{2};
  RunOptions options = small_llama();
};

TEST_F(MemoryPassesOfARun, AreNoneWhereItFits) {
  const auto found = memory_passes(options, device, bytes("v1", "none"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->flags, "");
  EXPECT_EQ(found->options, options);
}

TEST_F(MemoryPassesOfARun, AreTheLeastRecomputationThatFits) {
  const std::size_t needed = bytes("v1", "none"), least = bytes("v1", "block");
  ASSERT_LT(least, needed);
  const auto found = memory_passes(options, device, needed - 1);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->flags, MatchesRegex("--recompute (attention|block):1"));
  EXPECT_LE(plan_step(found->options, device).device_bytes, needed - 1);
  const auto most = memory_passes(options, device, least);
  ASSERT_TRUE(most);
  EXPECT_EQ(most->options.version, "v1");
  EXPECT_LE(plan_step(most->options, device).device_bytes, least);
}

TEST_F(MemoryPassesOfARun, AreThoseOfAnotherVersionWhereItsOwnAreNotEnough) {
  const std::size_t own = bytes("v1", "block"), other = bytes("v4", "block");
  ASSERT_LT(other, own);
  const auto found = memory_passes(options, device, own - 1);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->flags, MatchesRegex("--version v4( --recompute .*)?"));
  EXPECT_LE(plan_step(found->options, device).device_bytes, own - 1);
  EXPECT_FALSE(memory_passes(options, device, other / 2));
}

TEST_F(MemoryPassesOfARun, LeaveWhatTheUserSet) {
  const std::size_t needed = bytes("v1", "none"), own = bytes("v1", "block");
  EXPECT_FALSE(memory_passes(options, device, own - 1, std::array{std::string("version")}));
  const auto found =
      memory_passes(options, device, needed - 1, std::array{std::string("recompute")});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->flags, "--version v4");
}

}  // namespace
}  // namespace ridge
