#include "ridge/analyze/ablation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RunOptions small() {
  RunOptions options = small_llama(one_layer);
  options.resolve();
  return options;
}

std::vector<std::string> passes_of(const std::vector<AblationStep>& steps) {
  std::vector<std::string> names;
  for (const AblationStep& step : steps) names.push_back(step.pass);
  return names;
}

// "v2" at the row of the pass that completes it.
std::string version_at(const std::vector<AblationStep>& steps, std::string_view pass) {
  for (const AblationStep& step : steps)
    if (step.pass == pass) return step.version;
  return "no such row";
}

using PassNames = std::set<std::string_view>;

PassNames names_of(const Schedule& schedule) {
  PassNames names;
  for (const Pass* pass : schedule.passes) names.insert(pass->name);
  return names;
}

class AblationSteps : public ::testing::Test {
 protected:
  CpuDevice device{1};
};

// Each row has one pass more. Those that find nothing in the graph of this model, such as those of
// images, have no row.
TEST_F(AblationSteps, BringEachVersionsPassesOneByOne) {
  const auto steps = ablation_steps(small(), device, "v1", "v4");
  EXPECT_TRUE(steps.front().options.schedule(device.target()).passes.empty());
  EXPECT_EQ(steps.front().version, "v1");
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const PassNames before = names_of(steps[i - 1].options.schedule(device.target()));
    const PassNames now = names_of(steps[i].options.schedule(device.target()));
    EXPECT_TRUE(now.contains(pass_named(steps[i].pass).name)) << steps[i].pass;
    EXPECT_FALSE(before.contains(pass_named(steps[i].pass).name)) << steps[i].pass;
    EXPECT_TRUE(std::ranges::includes(now, before)) << steps[i].pass;
  }
  EXPECT_THAT(passes_of(steps), Not(::testing::Contains("conv-epilogues")));
  EXPECT_EQ(version_at(steps, "fuse-qkv"), "");
  std::vector<std::string> versions;
  for (const AblationStep& step : steps)
    if (!step.version.empty()) versions.push_back(step.version);
  EXPECT_THAT(versions, ElementsAre("v1", "v2", "v3", "v4"));
  EXPECT_EQ(steps.back().version, "v4");
  RunOptions last = small();
  last.version = "v4";
  EXPECT_EQ(plan_step(steps.back().options, device).launches, plan_step(last, device).launches);
}

// The waterfall of a network's compile modes, in inference.
TEST_F(AblationSteps, AreThoseOfCompileModesToo) {
  RunOptions options = network_options("resnet18", Use::inference, "none", "fp32", 32);
  const auto steps = ablation_steps(options, device, "none", "max-autotune");
  EXPECT_THAT(passes_of(steps), ::testing::Contains("fold-batch-norm"));
  EXPECT_THAT(passes_of(steps), ::testing::Contains("conv-epilogues"));
  EXPECT_THAT(passes_of(steps), Not(::testing::Contains("fuse-qkv")));
  EXPECT_EQ(steps.front().version, "none");
  EXPECT_EQ(steps.back().version, "max-autotune");
}

TEST_F(AblationSteps, StartAndEndWhereTheyAreTold) {
  const auto steps = ablation_steps(small(), device, "v2", "v3");
  EXPECT_THAT(passes_of(steps), ElementsAre("", "flash-attention", "fold-rope",
                                            "cross-entropy-in-place", "swiglu-in-place"));
  EXPECT_EQ(steps.front().version, "v2");
  EXPECT_EQ(steps.back().version, "v3");
  EXPECT_THROW(ablation_steps(small(), device, "v3", "v3"), UsageError);
  EXPECT_THROW(ablation_steps(small(), device, "v3", "v2"), UsageError);
  EXPECT_THROW(ablation_steps(small(), device, "v0", "v2"), UsageError);
}

TEST_F(AblationSteps, KeepToEnabledAndDisabledPasses) {
  RunOptions options = small();
  options.enable_pass = "fold-rope";
  options.disable_pass = "swiglu";  // fuse-gate-up needs swiglu, and swiglu-in-place that
  const auto steps = ablation_steps(options, device, "v1", "v3");
  EXPECT_TRUE(steps.front().options.schedule(device.target()).has("fold-rope"));
  EXPECT_THAT(passes_of(steps), Not(::testing::Contains("fold-rope")));
  EXPECT_THAT(passes_of(steps), Not(::testing::Contains("fuse-gate-up")));
  EXPECT_EQ(steps.back().pass, "cross-entropy-in-place");
  EXPECT_EQ(steps.back().version, "v3") << "it ends with the last pass that is left";
  EXPECT_EQ(version_at(steps, "fuse-optimizer"), "v2");
}

// Three rows over eight rounds, in each of which the machine has another speed: the second row
// takes 0.8 of the first exactly, the third more or less what the second does.
Ablation made() {
  Ablation ablation{.model = "a <small> model",
                    .device = "a machine",
                    .options = {},
                    .rounds = {8, 3, 2},
                    .rows = {{.pass = "", .description = "plain", .version = "v1"},
                             {.pass = "fuse-qkv", .description = "one product"},
                             {.pass = "swiglu", .description = "\"<&>\"", .version = "v2"}}};
  const double wobble[] = {0.99, 1.02, 0.97, 1.01, 1.03, 0.98, 1.01, 0.99};
  for (int round = 0; round < 8; ++round) {
    const double speed = 1 + 0.5 * round;
    ablation.rows[0].round_seconds.push_back(0.010 * speed);
    ablation.rows[1].round_seconds.push_back(0.008 * speed);
    ablation.rows[2].round_seconds.push_back(0.008 * speed * wobble[round]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    ablation.rows[i].peak_bytes = 5'000'000 - 1'000'000 * i;
    ablation.rows[i].kernels = 1200 - 100 * static_cast<std::int64_t>(i);
    ablation.rows[i].bytes = 7'000'000;
    ablation.rows[i].flops = 2'000'000'000;
  }
  compare_rows(ablation.rows);
  return ablation;
}

TEST(CompareRows, PairsTimesByRound) {
  const std::vector<AblationRow> rows = made().rows;
  EXPECT_DOUBLE_EQ(rows[0].seconds, 0.0275);
  EXPECT_NEAR(rows[1].seconds, 0.022, 1e-12);
  ASSERT_TRUE(rows[1].to_before.interval);
  EXPECT_NEAR(rows[1].to_before.interval->low, 0.8, 1e-12) << "whatever the machine's speed";
  EXPECT_NEAR(rows[1].to_before.interval->high, 0.8, 1e-12);
  EXPECT_EQ(change_of(rows[1].to_before), Change::faster);
  EXPECT_NEAR(rows[2].to_before.value, 1.0, 0.01);
  EXPECT_EQ(change_of(rows[2].to_before), Change::unclear);
  EXPECT_NEAR(rows[2].to_first.value, 0.8, 0.01);
  EXPECT_EQ(change_of(rows[2].to_first), Change::faster)
      << "to the first row, not to the one before";
  EXPECT_EQ(rows[0].to_before.value, 1);
}

TEST(AblationText, NamesWhatIsClearAndWhatIsNot) {
  const std::string text = ablation_text(made());
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "fuse-qkv +\\| +\\| +22.000 \\| 0.800 \\[0.800, 0.800\\] \\| faster"));
  EXPECT_THAT(text, ::testing::ContainsRegex("swiglu +\\| v2 .*\\| no clear change \\| 0.8"));
  EXPECT_THAT(text, AllOf(HasSubstr("1,100"), HasSubstr("7.0"), HasSubstr("2.000"),
                          HasSubstr("8 rounds of 3 steps after 2 to")));
  EXPECT_THAT(text, Not(HasSubstr("Fewer than 6")));
}

TEST(AblationText, ClaimsNothingFromFewRounds) {
  Ablation ablation = made();
  for (AblationRow& row : ablation.rows) row.round_seconds.resize(5);
  ablation.rounds.rounds = 5;
  compare_rows(ablation.rows);
  const std::string text = ablation_text(ablation);
  EXPECT_THAT(text, AllOf(HasSubstr("too few rounds"), HasSubstr("Fewer than 6 rounds")));
  EXPECT_THAT(text, Not(HasSubstr("faster")));
}

TEST(AblationJson, HasEveryRound) {
  const auto json = nlohmann::json::parse(ablation_json(made()));
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][0]["to_row_before"], nullptr);
  EXPECT_EQ(json["rows"][1]["to_row_before"]["change"], "faster");
  EXPECT_NEAR(json["rows"][1]["to_first"]["high"].get<double>(), 0.8, 1e-12);
  EXPECT_EQ(json["rows"][2]["version"], "v2");
  EXPECT_EQ(json["rows"][1]["version"], nullptr);
  EXPECT_EQ(json["rows"][2]["round_seconds"].size(), 8u);
  EXPECT_EQ(json["rows"][2]["peak_bytes"], 3'000'000);
  EXPECT_EQ(json["steps_per_round"], 3);
}

// Whether every element of an XML text is closed in its turn, and no text has a bare < or &.
bool is_balanced(std::string_view xml) {
  std::vector<std::string> open;
  while (!xml.empty()) {
    if (xml.front() == '&') {
      const std::size_t end = xml.find(';');
      if (end == std::string_view::npos || end > 6) return false;
    }
    if (xml.front() != '<') {
      xml.remove_prefix(1);
      continue;
    }
    const std::size_t end = xml.find('>');
    if (end == std::string_view::npos) return false;
    const std::string tag(xml.substr(1, end - 1));
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      if (tag.find('<') != std::string::npos) return false;
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    xml.remove_prefix(end + 1);
  }
  return open.empty();
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

TEST(AblationSvg, IsXmlWithABarForEachRow) {
  const std::string svg = ablation_svg(made());
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(is_balanced(svg));
  EXPECT_FALSE(is_balanced(svg + "</svg>"));
  EXPECT_EQ(count(svg, "<rect class=\"whole\""), 2u) << "the first and the last";
  EXPECT_EQ(count(svg, "<rect class=\"faster\""), 1u);
  EXPECT_EQ(count(svg, "<rect class=\"unclear\""), 1u);
  EXPECT_EQ(count(svg, "<rect class=\"slower\""), 0u);
  EXPECT_EQ(count(svg, "<rect class=\"strip\""), 9u);
  EXPECT_EQ(count(svg, "<path class=\"whisker\""), 2u);
  EXPECT_EQ(count(svg, " %</text>"), 1u) << "of the clear change alone";
  EXPECT_THAT(svg, AllOf(HasSubstr(">+ fuse-qkv<"), HasSubstr("prefers-color-scheme:dark"),
                         HasSubstr("\u221220 %"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

// Of the bytes, which no row changes, the first bar has the number alone; of the peaks, those that
// differ from the bar before.
TEST(AblationSvg, WritesTheNumberOfABarWhereItChanges) {
  Ablation ablation = made();
  ablation.rows.insert(ablation.rows.begin() + 1, ablation.rows.front());
  ablation.rows.push_back(ablation.rows.front());
  for (std::size_t i = 0; i < 5; ++i) ablation.rows[i].peak_bytes = (i == 2 ? 4 : 5) * 1'000'000;
  const std::string svg = ablation_svg(ablation);
  EXPECT_EQ(count(svg, "<rect class=\"strip\""), 15u);
  EXPECT_EQ(count(svg, ">7.0</text>"), 1u) << "bytes: 7.0 in all rows";
  EXPECT_EQ(count(svg, ">5.0</text>"), 2u) << "peaks: 5.0, 5.0, 4.0, 5.0, 5.0";
  EXPECT_EQ(count(svg, ">4.0</text>"), 1u);
  EXPECT_EQ(count(svg, ">1,200</text>"), 2u) << "kernels: 1200, 1200, 1100, 1000, 1200";
  EXPECT_EQ(count(svg, ">1,100</text>"), 1u);
  EXPECT_EQ(count(svg, ">1,000</text>"), 1u);
}

TEST(AblationSvg, SaysWhatIsTimed) {
  Ablation ablation = made();
  EXPECT_THAT(ablation_svg(ablation), HasSubstr("Milliseconds a training step takes"));
  ablation.options.mode = "inference";
  EXPECT_THAT(ablation_svg(ablation), HasSubstr("Milliseconds a pass takes"));
}

TEST(AblationSvg, HasNoHoleWhereNothingWasMeasured) {
  Ablation ablation = made();
  for (AblationRow& row : ablation.rows) {
    row.round_seconds = {0};
    row.peak_bytes = 0;
    row.kernels = row.bytes = 0;
  }
  compare_rows(ablation.rows);
  const std::string svg = ablation_svg(ablation);
  EXPECT_TRUE(is_balanced(svg));
  EXPECT_EQ(count(svg, "<rect class=\"whole\""), 2u);
}

TEST(AblationHtml, EscapesAndIsSelfContained) {
  const std::string html = ablation_html(made());
  EXPECT_THAT(html, AllOf(HasSubstr("a &lt;small&gt; model"), HasSubstr("<svg xmlns="),
                          HasSubstr("class=\"faster\">faster<"), HasSubstr("</table>"),
                          HasSubstr("&quot;&lt;&amp;&gt;&quot;")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href=")));
}

TEST(Change, IsClaimedOnlyBeyondTheInterval) {
  EXPECT_EQ(change_of({0.9, Interval{0.8, 0.99}}), Change::faster);
  EXPECT_EQ(change_of({0.9, Interval{0.8, 1}}), Change::unclear);
  EXPECT_EQ(change_of({1.1, Interval{1, 1.2}}), Change::unclear);
  EXPECT_EQ(change_of({1.1, Interval{1.01, 1.2}}), Change::slower);
  EXPECT_EQ(change_of({0.1, std::nullopt}), Change::unknown);
}

TEST(Rounds, ShareOutTheSteps) {
  EXPECT_EQ(rounds_of(10, 55, 3).steps, 5);
  EXPECT_EQ(rounds_of(10, 4, 3).steps, 1);
  EXPECT_EQ(rounds_of(10, 55, 3).steps_in_all(), 50);
  EXPECT_THROW(rounds_of(0, 10, 3), UsageError);
  EXPECT_THROW(rounds_of(-1, 10, 3), UsageError);
}

TEST(TimeInTurn, RunsEveryRunInEveryRound) {
  CpuDevice device(1);
  std::vector<Variant> variants{{"a", small()}, {"b", small()}};
  variants[1].options.version = "v3";
  variants[1].options.batch_size = 4;
  std::vector<std::int64_t> progress;
  const std::vector<TimedVariant> timed =
      time_interleaved(variants, device, {.rounds = 3, .steps = 2, .warmup = 1},
                       {.progress = [&](std::int64_t done, std::int64_t all) {
                         progress.push_back(done);
                         EXPECT_EQ(all, 12);
                       }});
  EXPECT_EQ(progress.size(), 12u);
  EXPECT_EQ(progress.back(), 12);
  ASSERT_EQ(timed.size(), 2u);
  for (const TimedVariant& run : timed) {
    ASSERT_EQ(run.rounds.size(), 3u);
    for (const auto& round : run.rounds) {
      ASSERT_EQ(round.size(), 2u);
      EXPECT_EQ(round.front().step, 2) << "the first step is the warm-up";
      EXPECT_EQ(round.front().loss, run.rounds.front().front().loss) << "each starts anew";
    }
    EXPECT_EQ(run.by_round().size(), 3u);
  }
  for (const TimedVariant& run : timed)
    EXPECT_EQ(run.peak_tensor_bytes, plan_step(run.variant.options, device).memory.peak_bytes);
  EXPECT_NE(timed[0].peak_tensor_bytes, timed[1].peak_tensor_bytes);
}

TEST(TimedVariant, TakesTheMedianOfARound) {
  TimedVariant run{.rounds = {{{.seconds = 1}, {.seconds = 9}, {.seconds = 2}}, {{.seconds = 4}}}};
  EXPECT_THAT(run.by_round(), ElementsAre(2, 4));
}

}  // namespace
}  // namespace ridge
