#include "ridge/passes/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ridge/base/error.h"
#include "ridge/session/options.h"
#include "tests/base/message_of.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using PassNames = std::set<std::string_view>;

PassNames of_row(std::string_view name) {
  const auto passes = schedule_row(name).passes;
  return {passes.begin(), passes.end()};
}

PassNames names_of(const Schedule& schedule) {
  PassNames names;
  for (const Pass* pass : schedule.passes) names.insert(pass->name);
  return names;
}

Schedule schedule(std::string_view row, std::string_view enable = "", std::string_view disable = "",
                  std::string_view recompute = "none", DeviceKind kind = DeviceKind::cpu,
                  std::string_view dtype = "fp32", Use use = Use::training) {
  return resolve(
      {std::string(row), std::string(enable), std::string(disable), std::string(recompute)},
      precision_named(dtype), {.kind = kind, .multiplies_float8 = kind == DeviceKind::gpu}, use);
}

std::string refusal(std::string_view row, std::string_view enable, std::string_view disable,
                    std::string_view recompute = "none") {
  return message_of<UsageError>([&] { schedule(row, enable, disable, recompute); });
}

TEST(Schedules, EachHasWhatTheOneBeforeOfItsKindHasAndMore) {
  ASSERT_THAT(schedules(), SizeIs(8));
  for (std::size_t i = 1; i < schedules().size(); ++i) {
    const ScheduleRow &before = schedules()[i - 1], &now = schedules()[i];
    if (before.kind != now.kind) {
      EXPECT_THAT(of_row(now.name), SizeIs(0)) << now.name;
      continue;
    }
    EXPECT_TRUE(std::ranges::includes(of_row(now.name), of_row(before.name))) << now.name;
    EXPECT_GT(now.passes.size(), before.passes.size());
  }
  EXPECT_THAT(of_row("v1"), SizeIs(0));
}

// A pass that is in no row is one that nobody has who does not ask for it.
TEST(Schedules, OfBothKindsTogetherHaveAllPassesThatARowMayHave) {
  PassNames all = of_row("v4");
  all.merge(of_row("max-autotune"));
  all.insert(packed_products);  // tuning chooses among the products that this one asks for
  for (const Pass& pass : passes())
    EXPECT_EQ(all.contains(pass.name), pass.chosen_by == ChosenBy::schedule) << pass.name;
}

TEST(Schedules, HaveOnlyPassesThatThereAreAndWhatTheyNeed) {
  for (const ScheduleRow& row : schedules()) {
    const PassNames names = of_row(row.name);
    EXPECT_EQ(names.size(), row.passes.size()) << "one is there twice";
    for (const std::string_view name : names)
      for (const std::string_view needed : pass_named(name).needs)
        EXPECT_TRUE(needed.empty() || names.contains(needed)) << name << " needs " << needed;
  }
  for (const Pass& pass : passes()) {
    EXPECT_EQ(pass.apply == nullptr, pass.stage == Stage::run) << pass.name;
    for (const PassList& list : {pass.needs, pass.excludes})
      for (const std::string_view name : list) {
        if (name.empty()) continue;
        EXPECT_NO_THROW(pass_named(name)) << pass.name;
      }
  }
}

TEST(Resolve, IsTheRowWithWhatSuitsDeviceAndUse) {
  for (const ScheduleRow& row : schedules())
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu})
      for (const Use use : {Use::training, Use::inference}) {
        const Schedule found = schedule(row.name, "", "", "none", kind, "fp32", use);
        PassNames expected;
        for (const std::string_view name : row.passes) {
          const Pass& pass = pass_named(name);
          if (pass.use.value_or(use) == use && pass.where.value_or(kind) == kind &&
              !pass.of_ranks && pass.precisions.contains(precision_named("fp32")))
            expected.insert(name);
        }
        EXPECT_EQ(names_of(found), expected) << row.name;
        EXPECT_EQ(found.recompute, Recompute::none);
        for (const Schedule::LeftOut& left : found.left_out)
          EXPECT_FALSE(left.why.empty()) << left.pass->name;
        EXPECT_EQ(found.left_out.size(), row.passes.size() - expected.size());
      }
}

TEST(Resolve, HasForSeveralRanksWhatSharingABatchMeans) {
  const auto on_two = [](std::string_view row, std::string_view disable = "") {
    ScheduleRequest request{.row = std::string(row), .disable = std::string(disable)};
    request.ranks = 2;
    return resolve(request, precision_named("fp32"), {}, Use::training);
  };
  EXPECT_EQ(names_of(on_two("v1")), PassNames{"data-parallel"});
  EXPECT_TRUE(on_two("v2").has("bucket-gradients"));
  EXPECT_FALSE(on_two("v2", "bucket-gradients").has("bucket-gradients"));
  EXPECT_FALSE(schedule("v2").has("bucket-gradients"));
  EXPECT_THAT(message_of<UsageError>([&] { on_two("v2", "data-parallel"); }),
              HasSubstr("the pass data-parallel comes with --ranks"));
}

TEST(Resolve, SendsGradientsInBf16WhereProductsAreOfBf16) {
  const auto rounds = [](std::string_view dtype, DeviceKind kind, std::int64_t ranks) {
    ScheduleRequest request{.row = "v4"};
    request.ranks = ranks;
    const Target target{.kind = kind, .multiplies_float8 = kind == DeviceKind::gpu};
    return resolve(request, precision_named(dtype), target, Use::training).has("rounded-gradients");
  };
  EXPECT_TRUE(rounds("bf16", DeviceKind::gpu, 2));
  EXPECT_FALSE(rounds("bf16", DeviceKind::gpu, 1));
  EXPECT_FALSE(rounds("bf16", DeviceKind::cpu, 2)) << "Gloo sends f32";
  for (const char* dtype : {"fp32", "tf32", "fp16", "fp8"})
    EXPECT_FALSE(rounds(dtype, DeviceKind::gpu, 2)) << dtype;
}

// With 16 bits the f32 weights are state of the optimizer, which a rank shares or gathers itself.
TEST(Resolve, GathersWeightsWhereTheOptimizerIsShared) {
  const auto gathers = [](std::int64_t zero) {
    ScheduleRequest request{.row = "v2"};
    request.ranks = 2, request.zero = zero;
    return resolve(request, precision_named("bf16"), {}, Use::training).has("gather-weights");
  };
  EXPECT_FALSE(gathers(0));
  EXPECT_TRUE(gathers(1));
  EXPECT_TRUE(gathers(2));
  EXPECT_FALSE(gathers(3)) << "shard-parameters does";
}

TEST(Resolve, AddsAndTakesAway) {
  EXPECT_EQ(names_of(schedule("v1", "swiglu,pointwise")), (PassNames{"pointwise", "swiglu"}));
  PassNames expected = names_of(schedule("v2"));
  expected.erase("residual-norm");
  expected.insert("flash-attention");
  EXPECT_EQ(names_of(schedule("v2", "flash-attention,swiglu", "residual-norm")), expected);
  EXPECT_EQ(names_of(schedule("v1", "", "swiglu")), PassNames()) << "it was not there";
}

TEST(Resolve, KeepsTheOrderOfTheTable) {
  const std::vector<const Pass*> found = schedule("v4", "packed-products").passes;
  EXPECT_TRUE(std::ranges::is_sorted(found));
}

TEST(Resolve, TakesUnderscoresAndALastComma) {
  EXPECT_EQ(names_of(schedule("v1", "fuse_qkv,planned_memory,")),
            (PassNames{"fuse-qkv", "planned-memory"}));
  EXPECT_FALSE(schedule("v3", "", "flash_attention").has("flash-attention"));
}

TEST(Resolve, BringsWhatAPassNeedsAndLeavesOutWhatNeedsIt) {
  EXPECT_EQ(names_of(schedule("v1", "fuse-gate-up")), (PassNames{"fuse-gate-up", "swiglu"}));
  const Schedule without = schedule("v4", "", "swiglu");
  EXPECT_FALSE(without.has("swiglu"));
  EXPECT_FALSE(without.has("fuse-gate-up"));
  EXPECT_FALSE(without.has("swiglu-in-place")) << "needs what needs it";
  EXPECT_FALSE(without.has("gate-results"));
  EXPECT_EQ(without.passes.size(), schedule("v4").passes.size() - 4);
  EXPECT_TRUE(schedule("v4", "", "fuse-gate-up").has("swiglu"));
  EXPECT_FALSE(
      schedule("v4", "", "tuned-products", "none", DeviceKind::gpu).has("split-bf16-products"));
}

// A rewrite is the same anywhere; how a graph is executed is the device's own.
TEST(Resolve, LeavesOutAnotherDevicesExecutionAlone) {
  const Schedule rewrite = schedule("v1", "scaled-products", "", "none", DeviceKind::cpu, "tf32");
  EXPECT_EQ(names_of(rewrite), PassNames{"scaled-products"});
  EXPECT_THAT(rewrite.left_out, SizeIs(0));
  for (const Pass& pass : passes()) {
    if (pass.stage != Stage::run || pass.where != DeviceKind::gpu) continue;
    const Schedule on_cpu = schedule("v1", pass.name);
    EXPECT_EQ(names_of(on_cpu), PassNames()) << pass.name << " and what it needs";
    ASSERT_THAT(on_cpu.left_out, SizeIs(1)) << pass.name;
    EXPECT_EQ(on_cpu.left_out[0].pass, &pass);
    EXPECT_EQ(on_cpu.left_out[0].why, "for a GPU");
    EXPECT_TRUE(on_cpu.left_out[0].asked);
    EXPECT_TRUE(schedule("v1", pass.name, "", "none", DeviceKind::gpu).has(pass.name));
  }
  for (const Schedule::LeftOut& left : schedule("v4").left_out) EXPECT_FALSE(left.asked);
}

// The row has it on a GPU, the user here.
TEST(Resolve, DoesNotLeaveOutWhatIsThereAllTheSame) {
  const Schedule found = schedule("v4", "scaled-products", "", "none", DeviceKind::cpu, "tf32");
  EXPECT_TRUE(found.has("scaled-products"));
  for (const Schedule::LeftOut& left : found.left_out) EXPECT_FALSE(found.has(left.pass->name));
}

TEST(Resolve, DoesWhatThePrecisionMeans) {
  const Schedule fp8 = schedule("v4", "", "", "none", DeviceKind::gpu, "fp8");
  EXPECT_TRUE(fp8.has("fp8-products"));
  EXPECT_FALSE(fp8.has("linear-swiglu")) << "both want the products of the gate";
  EXPECT_FALSE(schedule("v4", "", "", "none", DeviceKind::gpu, "bf16").has("fp8-products"));
  const Schedule int8 = schedule("none", "", "", "none", DeviceKind::cpu, "int8", Use::inference);
  EXPECT_TRUE(int8.has("int8-layers"));
  EXPECT_TRUE(int8.has("fold-batch-norm")) << "which it needs";
  EXPECT_EQ(int8.precision.compute, DType::f32);
  EXPECT_EQ(
      schedule("none", "", "", "none", DeviceKind::gpu, "int8", Use::inference).precision.compute,
      DType::f16);
  EXPECT_THROW(schedule("v4", "", "", "none", DeviceKind::cpu, "fp8"), UsageError);
  EXPECT_THROW(schedule("v4", "", "", "none", DeviceKind::cpu, "int8"), UsageError);
}

TEST(Resolve, KnowsWhatToRecompute) {
  EXPECT_EQ(schedule("v1", "", "", "attention").recompute, Recompute::attention);
  EXPECT_EQ(schedule("v4", "", "", "block").recompute, Recompute::block);
  EXPECT_EQ(schedule("v4", "", "", "block:3").recompute, Recompute(Recompute::block, 3));
  EXPECT_TRUE(schedule("v1", "", "", "block").has("recompute"));
  EXPECT_FALSE(schedule("v1").has("recompute"));
  for (const char* name : {"none", "attention", "block", "attention:2", "block:10"})
    EXPECT_EQ(name_of(schedule("v4", "", "", name).recompute), name);
  for (const char* wrong : {"none:1", "block:", "block:0", "block:-1", "block:2x", "attention:1.5"})
    EXPECT_THROW(schedule("v4", "", "", wrong), UsageError) << wrong;
}

TEST(Resolve, SaysWhatIsWrongAndWhatThereIs) {
  EXPECT_THAT(refusal("v5", "", ""),
              AllOf(HasSubstr("'v5'"), HasSubstr("v1, v2, v3, v4"), HasSubstr("none, default")));
  EXPECT_THAT(refusal("", "", ""), HasSubstr("no version ''"));
  for (const std::string& message : {refusal("v1", "swigul", ""), refusal("v1", "", "swigul")}) {
    EXPECT_THAT(message, HasSubstr("'swigul'"));
    for (const Pass& pass : passes()) EXPECT_THAT(message, HasSubstr(std::string(pass.name)));
  }
  EXPECT_THAT(refusal("v1", "swiglu,,pointwise", ""), HasSubstr("no pass ''"));
  EXPECT_THAT(refusal("v1", "fold-batch-norm", ""), HasSubstr("fold-batch-norm is for inference"));
  EXPECT_THAT(refusal("v1", "int8-layers", ""), HasSubstr("comes with --dtype"));
  EXPECT_THAT(refusal("v1", "recompute", ""), HasSubstr("comes with --recompute"));
  EXPECT_EQ(refusal("v2", "swiglu,pointwise", "pointwise"),
            "the pass pointwise is both enabled and disabled");
  EXPECT_EQ(refusal("v1", "fuse-gate-up", "swiglu"),
            "the pass fuse-gate-up needs swiglu, which is disabled");
  EXPECT_THAT(refusal("v1", "", "", "all"),
              AllOf(HasSubstr("'all'"), HasSubstr("none, attention, block")));
}

TEST(Resolve, IsCheckedWithTheOptions) {
  const auto resolved = [](auto change) {
    RunOptions o;
    change(o);
    o.resolve();
    return o.schedule({});
  };
  EXPECT_THROW(resolved([](RunOptions& o) { o.version = "v5"; }), UsageError);
  EXPECT_THROW(resolved([](RunOptions& o) { o.enable_pass = "no-such"; }), UsageError);
  EXPECT_THROW(resolved([](RunOptions& o) { o.recompute = "some"; }), UsageError);
  EXPECT_TRUE(resolved([](RunOptions& o) { o.enable_pass = "swiglu"; }).has("swiglu"));
}

// Each in one line and with exit code 2, in every command that takes them.
TEST(ScheduleFlags, AreRefusedInOneLine) {
  const Sandbox sandbox;
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
