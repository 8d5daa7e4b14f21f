#include "ridge/analyze/table_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A result of six rounds of one step each.
TimedVariant result_of(const std::string& name, double seconds, std::int64_t batch = 4) {
  TimedVariant result{.variant = {name, default_options("resnet18")}};
  result.variant.options.mode = "inference";
  result.variant.options.version = "none";
  result.variant.options.batch_size = batch;
  result.rounds.assign(6, {{.device_seconds = seconds}});
  result.samples = batch;
  result.work = {.flops = 1'000'000'000, .bytes_read = 80'000'000, .bytes_written = 20'000'000};
  result.kernels = 70;
  return result;
}

// 25, 80, 95 and 100 samples a second.
std::vector<TimedVariant> batches() {
  return {result_of("1", 1 / 25.0, 1), result_of("4", 4 / 80.0, 4), result_of("8", 8 / 95.0, 8),
          result_of("16", 16 / 100.0, 16)};
}

TEST(BatchSizes, NameTheSmallestThatIsNearTheBest) {
  const std::string text = batch_size_answers(batches(), {});
  EXPECT_THAT(text, HasSubstr("From a batch of 1 to one of 16, 16 times as large, samples/s become "
                              "4.00 times as many: not in proportion."));
  EXPECT_THAT(text, HasSubstr("Sweet spot: a batch of 8, the smallest with 90 % of the most "
                              "samples/s, 100.0 at 16."));
  EXPECT_THAT(text, Not(HasSubstr("still larger")));

  std::vector<TimedVariant> growing{result_of("1", 0.1, 1), result_of("2", 0.1, 2)};
  growing[1].peak_flops = growing[0].peak_flops = 20e9;
  EXPECT_THAT(batch_size_answers(growing, {}),
              AllOf(HasSubstr("2.00 times as many: in proportion"), HasSubstr("a batch of 2"),
                    HasSubstr("still larger ones may do better"),
                    HasSubstr("Of the peak, 50 % is reached with 1")));
  std::ranges::reverse(growing);
  EXPECT_THAT(batch_size_answers(growing, {}), HasSubstr("From a batch of 1 to one of 2"))
      << "in whatever order they were given";
}

TEST(BatchSizes, NameTheLargestWithinALatency) {
  const auto within = [](double seconds) {
    return batch_size_answers(batches(), {.latency_limit = seconds});
  };
  // 8 take 84.2 ms and 16 take 160.
  EXPECT_THAT(within(0.1),
              AllOf(HasSubstr("Largest batch within 100.0 ms: 8, with 95.0 samples/s; "
                              "its median is 84.2 ms"),
                    HasSubstr("16 takes 160.0 ms; by the line between the two, 9 would "
                              "just do")));
  EXPECT_THAT(within(0.01), HasSubstr("Within 10.0 ms there is no batch: the smallest, 1, takes "
                                      "40.0 ms."));
  EXPECT_THAT(within(1), HasSubstr("1000.0 ms: 16, with 100.0 samples/s"));
  std::vector<TimedVariant> once = batches();
  once[3].rounds[2] = {{.device_seconds = 2}};
  EXPECT_THAT(batch_size_answers(once, {.latency_limit = 1}),
              HasSubstr("its slowest of 6 2000.0 ms, beyond the limit"));
}

TEST(Modes, SayWhenCompilingIsPaidBackAndWhyItGains) {
  std::vector<TimedVariant> results{result_of("no compile", 0.2), result_of("default", 0.1)};
  results[0].compile_seconds = 0.5;
  results[1].compile_seconds = 2.45;
  results[1].kernels = 24;
  results[1].work.bytes_read = 30'000'000;
  results[0].at_best = LeastTime{.computing = 0.03, .moving = 0.05, .starting = 0.02};
  results[1].at_best = LeastTime{.computing = 0.03, .moving = 0.02};
  EXPECT_DOUBLE_EQ(steps_to_pay(results[0], results[1]).value(), 19.5);
  EXPECT_FALSE(steps_to_pay(results[1], results[0])) << "a slower one never pays";
  EXPECT_THAT(
      mode_answers(results),
      AllOf(HasSubstr("Fastest: default, 2.00x [2.00, 2.00] as fast as no compile: 24 "
                      "kernels in place of 70, 50.0 MB moved in place of 100.0 MB."),
            HasSubstr("takes 100.0 ms under no compile, 50 % of it moving bytes, and 50.0 "
                      "ms under default: 2.00 times as fast. 30 % of the first is computing"),
            HasSubstr("paid back after 20 batches of 4 samples")));
  results[1].rounds.assign(6, {{.device_seconds = 0.21}});
  EXPECT_THAT(mode_answers(results), HasSubstr("No mode is clearly faster than no compile"));
  EXPECT_THAT(mode_answers(results), Not(HasSubstr("paid back")));
}

TEST(Precisions, SayWhichUseOfMemoryFell) {
  std::vector<TimedVariant> results{result_of("fp32", 0.2), result_of("bf16", 0.1)};
  results[0].at_peak = {.parameters = 100'000'000, .intermediates = 60'000'000};
  results[1].at_peak = {
      .parameters = 100'000'000, .intermediates = 30'000'000, .packed = 10'000'000};
  EXPECT_EQ(precision_answers(results),
            "BF16 holds 20.0 MB less at the peak: intermediates 30.0 MB less, packed weights 10.0 "
            "MB more.\n");
}

TEST(Combinations, NameTheBestOfEachNetworkAndWhatGainsMost) {
  std::vector<TimedVariant> results;
  for (const char* network : {"resnet18", "resnet50"})
    for (const char* mode : {"no compile", "default"}) {
      TimedVariant& result =
          results.emplace_back(result_of(std::string(network) + ", " + mode, 0.2));
      result.variant.options.network = network;
    }
  results[1].rounds.assign(6, {{.device_seconds = 0.05}});
  results[3].rounds.assign(6, {{.device_seconds = 0.1}});
  results[3].kernels = 30;
  const std::string text = combination_answers(results, {});
  EXPECT_THAT(text, HasSubstr("Most samples/s of resnet50: resnet50, default, 40.0, 2.00x [2.00, "
                              "2.00] as fast as resnet50, no compile."));
  EXPECT_THAT(text, HasSubstr("resnet18 gains most, 4.00 times"));
  EXPECT_THAT(text, HasSubstr("resnet50 gains least, 2.00 times: 30 kernels in place of 70, 100.0 "
                              "MB moved in place of 100.0 MB, 10.0 FLOPs for each byte before"));
  EXPECT_THAT(text, HasSubstr("Most samples/s of all: resnet18, default.\n"));
  EXPECT_THAT(combination_answers(results, {.latency_limit = 0.01}),
              HasSubstr("Nothing takes 10.0 ms or less for a batch"));
  EXPECT_THAT(combination_answers(results, {.latency_limit = 0.07}),
              AllOf(HasSubstr("of resnet18 within 70.0 ms a batch"), Not(HasSubstr("resnet50"))));
  results[3].rounds.assign(6, {{.device_seconds = 0.3}});
  EXPECT_THAT(combination_answers(results, {}),
              AllOf(HasSubstr("resnet18 gains most, 4.00 times"), HasSubstr("No gain: resnet50."),
                    Not(HasSubstr("gains least"))));
}

TEST(Combinations, AreATableOfWhatVaries) {
  std::vector<TimedVariant> results{result_of("fp32, no compile", 0.2),
                                    result_of("bf16, default", 0.1)};
  results[1].variant.options.dtype = "bf16";
  results[1].variant.options.version = "default";
  for (TimedVariant& result : results) result.peak_flops = 20e9;
  const std::string text = combinations_table(results, {.price_per_hour = 3.6});
  EXPECT_THAT(text, HasSubstr("Precision | Mode    | ms/batch"));
  EXPECT_THAT(text, HasSubstr("bf16      | default |  100.000 |      40.0"));
  EXPECT_THAT(text, HasSubstr("% of peak | Price of 1000"));
  EXPECT_THAT(text, HasSubstr("     50.0 |         0.025 | 2.00x [2.00, 2.00]"));
  EXPECT_DOUBLE_EQ(price_of_thousand(40, 3.6), 0.025);
}

}  // namespace
}  // namespace ridge
