#include "ridge/analyze/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/analyze/largest_batch.h"
#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "tests/run/failing_devices.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A result with one time in each of `rounds` rounds.
TimedVariant result_of(const std::string& name, double seconds, int rounds) {
  TimedVariant result{.variant = {name, default_options("resnet18")}};
  result.variant.options.mode = "inference";
  result.variant.options.version = "none";
  result.rounds.assign(static_cast<std::size_t>(rounds), {{.device_seconds = seconds}});
  result.peak_tensor_bytes = 500'000'000;
  result.samples = 4;
  return result;
}

TEST(Variants, CountsSamplesAndMemory) {
  const TimedVariant result = result_of("a", 0.1, 6);
  EXPECT_DOUBLE_EQ(result.samples_per_second(), 40);
  EXPECT_DOUBLE_EQ(result.samples_per_second_per_gb(), 80);

  TimedVariant slow_once = result_of("b", 0.1, 6);
  slow_once.rounds[2] = {{.device_seconds = 1.0}};
  EXPECT_DOUBLE_EQ(slow_once.samples_per_second(), 40) << "as the median of 0.1 s says";
  EXPECT_EQ(result_of("c", 0.1, 0).samples_per_second(), 0);
}

TEST(Variants, PairsRoundsToASpeedup) {
  const Ratio faster = speedup_over(result_of("a", 0.2, 6), result_of("b", 0.1, 6));
  EXPECT_DOUBLE_EQ(faster.value, 2);
  EXPECT_TRUE(faster.interval.has_value());
  EXPECT_FALSE(speedup_over(result_of("a", 0.2, 6), result_of("b", 0.1, 3)).interval.has_value())
      << "of an interrupted run there are fewer rounds";
  EXPECT_EQ(speedup_over(result_of("a", 0.2, 6), result_of("b", 0.1, 0)).value, 0);
}

TEST(Variants, SaysHowFarResultsAreApart) {
  TimedVariant a = result_of("fp32", 1, 1), b = result_of("bf16", 1, 1);
  a.loss = 6.9, b.loss = 6.95;
  a.logits = {1, 3, /**/ 1, -3};  // two samples of two classes; root mean square: sqrt(5)
  b.logits = {1, 3.5f, /**/ 1.5f, 2};
  a.logits_shape = b.logits_shape = {2, 2};
  const Difference difference = difference_of(a, b);
  EXPECT_NEAR(difference.loss, 0.05, 1e-12);
  EXPECT_NEAR(difference.logits, 5 / std::sqrt(5.0), 1e-6);
  EXPECT_EQ(difference.same, 1);
  EXPECT_EQ(difference.all, 2);
  // As one sample of two classes and two pixels, of which the first is of another class now.
  a.logits_shape = b.logits_shape = {1, 2, 2};
  EXPECT_EQ(difference_of(a, b).same, 1);
  EXPECT_EQ(difference_of(a, b).all, 2);
}

TEST(Variants, FindsClassesWhereTheModelHasThem) {
  TimedVariant a = result_of("fp32", 1, 1), b = result_of("bf16", 1, 1);
  a.logits = {1, 3, /**/ 1, -3};  // two tokens of two classes
  b.logits = {1, 3.5f, /**/ 1.5f, 2};
  a.logits_shape = b.logits_shape = {1, 2, 2};
  a.class_dim = 2;
  EXPECT_EQ(difference_of(a, b).same, 1);
  EXPECT_EQ(difference_of(a, b).all, 2);
  // As two classes of two pixels each, 1 and 3 against 1 and -3: both pixels keep their class.
  a.class_dim = 1;
  a.logits = {1, 3, /**/ 0, -3};
  b.logits = {1, 3, /**/ 0.5f, 2};
  EXPECT_EQ(difference_of(a, b).same, 2);
}

TEST(Variants, PrintsTheWorkshopsTables) {
  std::vector<TimedVariant> results{result_of("no compile", 0.2, 6), result_of("default", 0.1, 6)};
  results[1].variant.options.version = "default";
  results[1].compile_seconds = 1.5;
  const std::string modes = modes_table(results);
  EXPECT_THAT(modes, HasSubstr("1.5 s |  100.000 |      40.0 |     500.0 | 2.00x [2.00, 2.00]"));

  std::vector<Difference> differences{{}, {.loss = 0.01, .logits = 0.002, .same = 3, .all = 4}};
  results[1].peak_tensor_bytes = 250'000'000;
  const std::string precisions = precisions_table(results, differences);
  for (const char* text :
       {"50 % less", "2.00x [2.00, 2.00]", "differs by 0.0100", "2.0e-03", "3 of 4"})
    EXPECT_THAT(precisions, HasSubstr(text));

  results[1].rounds.clear();
  results[1].fault = "this needs 7 GiB";
  const std::string sizes = batch_sizes_table(results);
  EXPECT_THAT(sizes, HasSubstr("out of memory"));
  EXPECT_THAT(sizes, HasSubstr("default: this needs 7 GiB\n"));
  const auto json = nlohmann::json::parse(variants_json("batch_sizes", results));
  EXPECT_EQ(json["rows"][0]["samples_per_second"], 20.0);
  EXPECT_EQ(json["rows"][1]["fault"], "this needs 7 GiB");
  EXPECT_FALSE(json["rows"][1].contains("seconds"));
  for (const std::string& table : {modes_table(results), precisions_table(results, differences)})
    EXPECT_THAT(table, HasSubstr("out of memory"));
}

RunOptions small(std::string_view dtype = "fp32") {
  RunOptions options = network_options("squeezenet1_1", Use::inference, "none", dtype, 32);
  options.threads = 1;
  return options;
}

TEST(Interleave, GoesBackwardsInEveryOtherRound) {
  std::vector<std::pair<std::size_t, std::int64_t>> turns;
  interleave(3, 3, [&](std::size_t run, std::int64_t round) { turns.emplace_back(run, round); });
  EXPECT_THAT(turns,
              ElementsAre(::testing::Pair(0, 0), ::testing::Pair(1, 0), ::testing::Pair(2, 0),
                          ::testing::Pair(2, 1), ::testing::Pair(1, 1), ::testing::Pair(0, 1),
                          ::testing::Pair(0, 2), ::testing::Pair(1, 2), ::testing::Pair(2, 2)));
}

// The number of a step tells how many were before it.
TEST(Variants, WarmUpWholeOnlyOnce) {
  CpuDevice device(1);
  const auto results = time_interleaved({{"a", small()}}, device, {3, 2, 4});
  std::vector<std::int64_t> numbers;
  for (const StepReport& step : results[0].steps()) numbers.push_back(step.step);
  EXPECT_THAT(numbers, ElementsAre(5, 6, 8, 9, 11, 12));
}

TEST(Variants, TakeTurnsUntilAllStepsAreDone) {
  CpuDevice device(1);
  std::int64_t last = 0, all = 0;
  const TurnHooks hooks{.keep_logits = true, .progress = [&](std::int64_t d, std::int64_t a) {
                          EXPECT_EQ(d, last + 1);
                          last = d, all = a;
                        }};
  const auto results =
      time_interleaved({{"fp32", small()}, {"bf16", small("bf16")}}, device, {6, 2, 1}, hooks);
  EXPECT_EQ(last, 24);
  EXPECT_EQ(all, 24);
  EXPECT_EQ(results[0].seconds().size(), 12u);
  EXPECT_EQ(results[0].rounds.size(), 6u);
  EXPECT_EQ(results[0].logits.size(), 2000u);
  const Difference difference = difference_of(results[0], results[1]);
  EXPECT_GT(difference.logits, 0) << "bf16 rounds";
  EXPECT_LT(difference.logits, 0.2);
}

TEST(Variants, KeepWhatWasMeasuredBeforeAnInterrupt) {
  CpuDevice device(1);
  int asked = 0;
  const auto results = time_interleaved({{"a", small()}, {"b", small()}}, device, {6, 2, 1},
                                        {.stop = [&] { return ++asked > 3; }});
  EXPECT_TRUE(results[0].measured());
  EXPECT_FALSE(results[1].measured());
  EXPECT_EQ(results[1].fault, "");
  EXPECT_THAT(batch_sizes_table(results), HasSubstr("not run"));
}

// Memory for little more than one of two sessions.
TEST(Variants, AreHeldOneAtATimeWhereMemoryIsShort) {
  CpuDevice device(1);
  const std::size_t one = plan_step(small(), device).device_bytes;
  RunOptions large = small();
  large.batch_size = 1 << 12;
  ridge::testing::SmallDevice tight(device, one + one / 2, 0);
  const auto results =
      time_interleaved({{"a", small()}, {"b", small()}, {"large", large}}, tight, {6, 2, 1});
  EXPECT_EQ(results[0].seconds().size(), 12u) << results[0].fault;
  EXPECT_EQ(results[1].seconds().size(), 12u) << results[1].fault;
  EXPECT_FALSE(results[2].measured());
  EXPECT_THAT(results[2].fault, HasSubstr("smaller batch"));
}

TEST(LargestBatch, IsPlannedToTheByteAndRuns) {
  CpuDevice device(1);
  const std::size_t budget = 24 << 20;
  const LargestBatch found = find_largest_batch(small(), device, budget);
  EXPECT_EQ(found.fault, "");
  EXPECT_EQ(found.options.batch_size, found.planned.size);
  EXPECT_EQ(found.measured_peak, found.planned.peak_bytes);
  EXPECT_LE(found.planned.peak_bytes, budget);
  EXPECT_GT(found.planned.next_peak_bytes.value(), budget);
  EXPECT_THAT(largest_batches_text(std::span(&found, 1)), HasSubstr("24.00 MiB"));

  const LargestBatch stopped = find_largest_batch(small(), device, budget, [] { return true; });
  EXPECT_EQ(stopped.options.batch_size, 0);
  EXPECT_EQ(stopped.planned.size, found.planned.size);
  EXPECT_THAT(largest_batches_text(std::span(&stopped, 1)), HasSubstr("fp32: interrupted"));

  const LargestBatch none = find_largest_batch(small(), device, 1000);
  EXPECT_EQ(none.options.batch_size, 0);
  EXPECT_THAT(largest_batches_text(std::span(&none, 1)), HasSubstr("not even a batch of 1"));
  EXPECT_THAT(largest_batches_text(std::span(&none, 1)), Not(HasSubstr("inf")));
}

// The same of a model of tokens, in training.
TEST(LargestBatch, OfALanguageModelIsPlannedToTheByteAndRuns) {
  CpuDevice device(1);
  RunOptions options;
  options.hidden_dim = 64;
  options.n_layers = 2;
  options.seq_len = 16;
  options.resolve();
  const LargestBatch found = find_largest_batch(options, device, 16 << 20);
  EXPECT_EQ(found.fault, "");
  EXPECT_GT(found.options.batch_size, 1);
  EXPECT_EQ(found.measured_peak, found.planned.peak_bytes);
}

// An arena may have gaps: places that nothing fits into while the most bytes are alive. The run
// takes them of the device all the same.
TEST(LargestBatch, OfPlannedMemoryTakesTheWholeArena) {
  CpuDevice device(1);
  RunOptions options;
  StepPlan plan;
  for (std::int64_t seq_len = 22; seq_len < 64 && plan.device_bytes <= plan.memory.peak_bytes;
       ++seq_len) {
    options = small_llama({.batch_size = 1, .seq_len = seq_len});
    options.version = "default";
    options.threads = 1;
    options.resolve();
    plan = plan_step(options, device);
  }
  ASSERT_GT(plan.device_bytes, plan.memory.peak_bytes) << "an arena without gaps shows nothing";
  const LargestBatch found = find_largest_batch(options, device, plan.device_bytes);
  EXPECT_EQ(found.fault, "");
  EXPECT_EQ(found.options.batch_size, 1);
  EXPECT_EQ(found.planned.peak_bytes, plan.device_bytes);
  EXPECT_EQ(found.measured_peak, plan.device_bytes);
}

// A step of training runs all the batches whose gradients it sums.
TEST(LargestBatch, CountsTheSamplesOfAllBatchesOfAStep) {
  LargestBatch found{.options = default_options("resnet18"), .planned = {.size = 8}};
  found.options.batch_size = 8;
  found.seconds = 0.5;
  found.options.gradient_accumulation_steps = 4;
  EXPECT_DOUBLE_EQ(found.samples_per_second(), 64);
  EXPECT_THAT(largest_batches_text(std::span(&found, 1)), HasSubstr(" 64.0\n"));
  EXPECT_EQ(nlohmann::json::parse(
                largest_batches_json(std::span(&found, 1)))["rows"][0]["samples_per_second"],
            64.0);
  found.options.mode = "inference";
  EXPECT_DOUBLE_EQ(found.samples_per_second(), 16);
}

}  // namespace
}  // namespace ridge
