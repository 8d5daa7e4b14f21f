#include "ridge/analyze/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/analyze/largest_batch.h"
#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "tests/run/failing_devices.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A result with one time in each of `rounds` rounds.
VariantResult result_of(const std::string& name, double seconds, int rounds) {
  VariantResult result{.variant = {name, {.batch_size = 4}}};
  result.rounds.assign(static_cast<std::size_t>(rounds), {seconds});
  result.peak_tensor_bytes = 500'000'000;
  return result;
}

TEST(BenchComparison, CountsSamplesAndMemory) {
  const VariantResult result = result_of("a", 0.1, 6);
  EXPECT_DOUBLE_EQ(result.samples_per_second(), 40);
  EXPECT_DOUBLE_EQ(result.samples_per_second_per_gb(), 80);

  VariantResult slow_once = result_of("b", 0.1, 6);
  slow_once.rounds[2] = {1.0};
  EXPECT_DOUBLE_EQ(slow_once.samples_per_second(), 40) << "as the median of 0.1 s says";
  EXPECT_EQ(result_of("c", 0.1, 0).samples_per_second(), 0);
}

TEST(BenchComparison, PairsRoundsToASpeedup) {
  const Ratio faster = speedup_over(result_of("a", 0.2, 6), result_of("b", 0.1, 6));
  EXPECT_DOUBLE_EQ(faster.value, 2);
  EXPECT_TRUE(faster.interval.has_value());
  EXPECT_FALSE(speedup_over(result_of("a", 0.2, 6), result_of("b", 0.1, 3)).interval.has_value())
      << "of an interrupted run there are fewer rounds";
  EXPECT_EQ(speedup_over(result_of("a", 0.2, 6), result_of("b", 0.1, 0)).value, 0);
}

TEST(BenchComparison, SaysHowFarResultsAreApart) {
  VariantResult a = result_of("fp32", 1, 1), b = result_of("bf16", 1, 1);
  a.loss = 6.9, b.loss = 6.95;
  a.logits = {1, 3, /**/ 1, -3};  // two samples of two classes; root mean square: sqrt(5)
  b.logits = {1, 3.5f, /**/ 1.5f, 2};
  const Difference difference = difference_of(a, b, 2);
  EXPECT_NEAR(difference.loss, 0.05, 1e-12);
  EXPECT_NEAR(difference.logits, 5 / std::sqrt(5.0), 1e-6);
  EXPECT_EQ(difference.same, 1);
  EXPECT_EQ(difference.all, 2);
  // As one sample of two classes and two pixels, of which the first is of another class now.
  EXPECT_EQ(difference_of(a, b, 2, 2).same, 1);
  EXPECT_EQ(difference_of(a, b, 2, 2).all, 2);
}

TEST(BenchComparison, PrintsTheWorkshopsTables) {
  std::vector<VariantResult> results{result_of("no compile", 0.2, 6), result_of("default", 0.1, 6)};
  results[1].variant.options.compile = "default";
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
  const auto json = nlohmann::json::parse(comparison_json("batch_sizes", results));
  EXPECT_EQ(json["rows"][0]["samples_per_second"], 20.0);
  EXPECT_EQ(json["rows"][1]["fault"], "this needs 7 GiB");
  EXPECT_FALSE(json["rows"][1].contains("seconds"));
  for (const std::string& table : {modes_table(results), precisions_table(results, differences)})
    EXPECT_THAT(table, HasSubstr("out of memory"));
}

BenchOptions small() {
  return {.network = "squeezenet1_1",
          .batch_size = 2,
          .iterations = 12,
          .warmup = 1,
          .image_size = 32,
          .threads = 1};
}

TEST(BenchComparison, TakesTurnsUntilAllIterationsAreDone) {
  CpuDevice device(1);
  BenchOptions bf16 = small();
  bf16.dtype = "bf16";
  bf16.iterations = 3;
  std::int64_t last = 0, all = 0;
  const ComparisonHooks hooks{.keep_logits = true, .progress = [&](std::int64_t d, std::int64_t a) {
                                EXPECT_EQ(d, last + 1);
                                last = d, all = a;
                              }};
  const auto results = time_variants({{"fp32", small()}, {"bf16", bf16}}, device, hooks);
  EXPECT_EQ(last, 15);
  EXPECT_EQ(all, 15);
  EXPECT_EQ(results[0].seconds().size(), 12u);
  EXPECT_EQ(results[0].rounds.size(), 10u);
  EXPECT_EQ(results[1].seconds().size(), 3u);
  EXPECT_EQ(results[0].logits.size(), 2000u);
  const Difference difference = difference_of(results[0], results[1], 1000);
  EXPECT_GT(difference.logits, 0) << "bf16 rounds";
  EXPECT_LT(difference.logits, 0.2);
}

TEST(BenchComparison, KeepsWhatWasMeasuredBeforeAnInterrupt) {
  CpuDevice device(1);
  int asked = 0;
  const auto results = time_variants({{"a", small()}, {"b", small()}}, device,
                                     {.stop = [&] { return ++asked > 3; }});
  EXPECT_TRUE(results[0].measured());
  EXPECT_FALSE(results[1].measured());
  EXPECT_EQ(results[1].fault, "");
  EXPECT_THAT(batch_sizes_table(results), HasSubstr("not run"));
}

// Memory for little more than one of two sessions.
TEST(BenchComparison, HoldsOneSessionAtATimeWhereMemoryIsShort) {
  CpuDevice device(1);
  const std::size_t one = bytes_needed(small(), device).value();
  BenchOptions large = small();
  large.batch_size = 1 << 12;
  ridge::testing::SmallDevice tight(device, one + one / 2, 0);
  const auto results = time_variants({{"a", small()}, {"b", small()}, {"large", large}}, tight);
  EXPECT_EQ(results[0].seconds().size(), 12u) << results[0].fault;
  EXPECT_EQ(results[1].seconds().size(), 12u) << results[1].fault;
  EXPECT_FALSE(results[2].measured());
  EXPECT_THAT(results[2].fault, HasSubstr("smaller batch"));
}

TEST(BenchLargestBatch, IsPlannedToTheByteAndRuns) {
  CpuDevice device(1);
  const std::size_t budget = 24 << 20;
  const LargestBatch found = find_largest_batch(small(), device, budget);
  EXPECT_EQ(found.fault, "");
  EXPECT_EQ(found.options.batch_size, found.planned.batch_size);
  EXPECT_EQ(found.measured_peak, found.planned.peak_bytes);
  EXPECT_LE(found.planned.peak_bytes, budget);
  EXPECT_GT(found.planned.next_peak_bytes.value(), budget);
  EXPECT_THAT(largest_batches_text(std::span(&found, 1)), HasSubstr("24.00 MiB"));

  const LargestBatch stopped = find_largest_batch(small(), device, budget, [] { return true; });
  EXPECT_EQ(stopped.options.batch_size, 0);
  EXPECT_EQ(stopped.planned.batch_size, found.planned.batch_size);
  EXPECT_THAT(largest_batches_text(std::span(&stopped, 1)), HasSubstr("fp32: interrupted"));

  const LargestBatch none = find_largest_batch(small(), device, 1000);
  EXPECT_EQ(none.options.batch_size, 0);
  EXPECT_THAT(largest_batches_text(std::span(&none, 1)), HasSubstr("not even a batch of 1"));
  EXPECT_THAT(largest_batches_text(std::span(&none, 1)), Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace ridge
