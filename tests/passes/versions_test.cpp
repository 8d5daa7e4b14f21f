#include "ridge/passes/versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/session/options.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

PassNames of_version(std::string_view name) {
  const auto passes = version_named(name).passes;
  return {passes.begin(), passes.end()};
}

// A version's passes on the device: each kind leaves one to the other.
PassNames on_device(std::string_view name, bool on_gpu) {
  PassNames passes = of_version(name);
  for (const char* other :
       on_gpu ? std::vector{"recompute-light"} : std::vector{"linear-swiglu", "scaled-products"})
    passes.erase(other);
  return passes;
}

std::string refusal(std::string_view version, std::string_view enable, std::string_view disable,
                    std::string_view recompute = "none") {
  try {
    schedule_of(version, enable, disable, recompute);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Versions, EachHasWhatTheOneBeforeHasAndMore) {
  ASSERT_THAT(versions(), SizeIs(4));
  EXPECT_THAT(of_version("v1"), SizeIs(0));
  for (std::size_t i = 1; i < versions().size(); ++i) {
    const PassNames before = of_version(versions()[i - 1].name),
                    now = of_version(versions()[i].name);
    EXPECT_TRUE(std::ranges::includes(now, before));
    EXPECT_GT(now.size(), before.size());
  }
  // Tuning chooses among the products that this one asks for.
  PassNames all = of_version("v4");
  all.insert(packed_products);
  const auto training = std::ranges::count_if(passes(), is_for_training, &Pass::stage);
  constexpr int for_images = 5;  // unread-rows, channels-last, conv-epilogues, two of batch norm
  EXPECT_EQ(all.size() + for_images, training) << "the last version leaves a pass out";
}

TEST(Versions, HaveOnlyPassesThatThereAreAndWhatTheyNeed) {
  for (const Version& version : versions()) {
    const PassNames names = of_version(version.name);
    EXPECT_EQ(names.size(), version.passes.size()) << "one is there twice";
    for (const std::string_view name : names) {
      const Pass& pass = pass_named(name);
      EXPECT_TRUE(pass.needs.empty() || names.contains(pass.needs)) << name;
    }
  }
  for (const Pass& pass : passes()) {
    EXPECT_EQ(pass.run == nullptr, pass.stage == Stage::run) << pass.name;
    EXPECT_NO_THROW(pass_named(pass.needs.empty() ? pass.name : pass.needs));
  }
}

TEST(ScheduleOf, IsTheVersionWithPassesAddedAndTakenAway) {
  for (const Version& version : versions()) {
    for (const bool on_gpu : {false, true}) {
      const Schedule schedule = schedule_of(version.name, "", "", "none", on_gpu);
      EXPECT_EQ(schedule.passes, on_device(version.name, on_gpu));
      EXPECT_EQ(schedule.recompute, Recompute::none);
    }
  }
  EXPECT_EQ(schedule_of("v1", "swiglu,pointwise", "", "none").passes,
            (PassNames{"pointwise", "swiglu"}));
  PassNames expected = of_version("v2");
  expected.erase("residual-norm");
  expected.insert("flash-attention");
  EXPECT_EQ(schedule_of("v2", "flash-attention,swiglu", "residual-norm", "none").passes, expected);
  EXPECT_EQ(schedule_of("v1", "", "swiglu", "none").passes, PassNames()) << "it was not there";
}

TEST(ScheduleOf, TakesUnderscoresAndALastComma) {
  EXPECT_EQ(schedule_of("v1", "fuse_qkv,planned_memory,", "", "none").passes,
            (PassNames{"fuse-qkv", "planned-memory"}));
  EXPECT_FALSE(schedule_of("v3", "", "flash_attention", "none").has("flash-attention"));
}

TEST(ScheduleOf, BringsWhatAPassNeedsAndLeavesOutWhatNeedsIt) {
  EXPECT_EQ(schedule_of("v1", "fuse-gate-up", "", "none").passes,
            (PassNames{"fuse-gate-up", "swiglu"}));
  const Schedule without = schedule_of("v4", "", "swiglu", "none");
  EXPECT_FALSE(without.has("swiglu"));
  EXPECT_FALSE(without.has("fuse-gate-up"));
  EXPECT_FALSE(without.has("swiglu-in-place")) << "needs what needs it";
  EXPECT_FALSE(without.has("gate-results"));
  EXPECT_EQ(without.passes.size(), on_device("v4", false).size() - 4);
  EXPECT_TRUE(schedule_of("v4", "", "fuse-gate-up", "none").has("swiglu"));
  EXPECT_FALSE(schedule_of("v4", "", "tuned-products", "none").has("products-in-pieces"));
}

TEST(ScheduleOf, KnowsWhatToRecompute) {
  EXPECT_EQ(schedule_of("v1", "", "", "attention").recompute, Recompute::attention);
  EXPECT_EQ(schedule_of("v4", "", "", "block").recompute, Recompute::block);
  EXPECT_EQ(schedule_of("v4", "", "", "block:3").recompute, Recompute(Recompute::block, 3));
  for (const char* name : {"none", "attention", "block", "attention:2", "block:10"})
    EXPECT_EQ(name_of(schedule_of("v4", "", "", name).recompute), name);
  for (const char* wrong : {"none:1", "block:", "block:0", "block:-1", "block:2x", "attention:1.5"})
    EXPECT_THROW(schedule_of("v4", "", "", wrong), UsageError) << wrong;
}

TEST(ScheduleOf, SaysWhatIsWrongAndWhatThereIs) {
  EXPECT_THAT(refusal("v5", "", ""), AllOf(HasSubstr("'v5'"), HasSubstr("v1, v2, v3, v4")));
  EXPECT_THAT(refusal("", "", ""), HasSubstr("no version ''"));
  for (const std::string& message : {refusal("v1", "swigul", ""), refusal("v1", "", "swigul")}) {
    EXPECT_THAT(message, HasSubstr("'swigul'"));
    for (const Pass& pass : passes()) EXPECT_THAT(message, HasSubstr(std::string(pass.name)));
  }
  EXPECT_THAT(refusal("v1", "swiglu,,pointwise", ""), HasSubstr("no pass ''"));
  EXPECT_THAT(refusal("v1", "fold-batch-norm", ""), HasSubstr("fold-batch-norm is for networks"));
  EXPECT_EQ(refusal("v2", "swiglu,pointwise", "pointwise"),
            "the pass pointwise is both enabled and disabled");
  EXPECT_EQ(refusal("v1", "fuse-gate-up", "swiglu"),
            "the pass fuse-gate-up needs swiglu, which is disabled");
  EXPECT_THAT(refusal("v1", "", "", "all"),
              AllOf(HasSubstr("'all'"), HasSubstr("none, attention, block")));
}

TEST(ScheduleOf, IsCheckedWithTheOptions) {
  const auto resolve = [](auto change) {
    TrainOptions o;
    change(o);
    o.resolve();
    return o.schedule();
  };
  EXPECT_THROW(resolve([](TrainOptions& o) { o.version = "v5"; }), UsageError);
  EXPECT_THROW(resolve([](TrainOptions& o) { o.enable_pass = "no-such"; }), UsageError);
  EXPECT_THROW(resolve([](TrainOptions& o) { o.recompute = "some"; }), UsageError);
  EXPECT_TRUE(resolve([](TrainOptions& o) { o.enable_pass = "swiglu"; }).has("swiglu"));
}

// Each in one line and with exit code 2, in every command that takes them.
TEST(ScheduleFlags, AreRefusedInOneLine) {
  const Sandbox sandbox;
  using Words = std::vector<std::string>;
  const auto complaint = [&](const std::string& command, Words flags) {
    flags.insert(flags.begin(), {"ridge", command});
    const ProgramResult result = sandbox.run(flags);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(flags);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(lines_of(result.err), SizeIs(1)) << result.err;
    EXPECT_FALSE(sandbox.has("output"));
    return result.err;
  };
  for (const char* command : {"train", "plan", "passes", "verify"}) {
    EXPECT_THAT(complaint(command, {"--version", "v7"}), HasSubstr("v1, v2, v3, v4"));
    EXPECT_THAT(complaint(command, {"--enable-pass", "swigul"}),
                AllOf(HasSubstr("'swigul'"), HasSubstr("swiglu")));
    EXPECT_THAT(complaint(command, {"--disable-pass", "fuse"}), HasSubstr("fuse-qkv"));
    EXPECT_THAT(complaint(command, {"--enable-pass", "swiglu", "--disable-pass", "swiglu"}),
                HasSubstr("both enabled and disabled"));
    EXPECT_THAT(complaint(command, {"--enable_pass", "fuse_gate_up", "--disable_pass", "swiglu"}),
                HasSubstr("needs swiglu"));
    EXPECT_THAT(complaint(command, {"--recompute", "everything"}),
                HasSubstr("none, attention, block"));
  }
}

}  // namespace
}  // namespace ridge
