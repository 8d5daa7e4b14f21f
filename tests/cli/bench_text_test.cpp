#include "ridge/cli/bench_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Ten times of 100 ms for 8 images of 3 GMACs, but for the last.
Record record_of(double last = 0.1) {
  Record record{.options = default_options("resnet50"),
                .workload = {.name = "resnet50", .sample = "image"},
                .samples_per_step = 8,
                .cost = StepCost{.forward = {.macs = 8 * 3'000'000'000}},
                .by_device = true,
                .peak_tensor_bytes = 57'000'000,
                .at_peak = {.parameters = 46'800'000, .packed = 10'200'000}};
  record.options.version = "none";
  record.options.batch_size = 8;
  for (int i = 0; i < 10; ++i)
    record.steps.push_back({.step = i + 1, .loss = 6.9, .device_seconds = i < 9 ? 0.1 : last});
  record.options.warmup_steps = 0;
  return record;
}

std::string text_of(const Record& record, bool on_gpu = false) {
  return bench_summary_text(record, summarize(record), on_gpu);
}

TEST(BenchSummary, SaysWhetherItIsToBeBelieved) {
  EXPECT_THAT(text_of(record_of(0.1)), HasSubstr("\n  good     The times vary by "));
  EXPECT_THAT(text_of(record_of(0.105)), Not(HasSubstr("doubtful The times"))) << "1.6 %";
  EXPECT_THAT(text_of(record_of(0.11)),
              AllOf(HasSubstr("\nIs this run to be believed? With doubts: "),
                    HasSubstr("\n  doubtful The times vary by 3.1 %")));
}

TEST(BenchSummary, WarnsOfALossThatIsNotFinite) {
  Record record = record_of();
  record.steps[7].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(text_of(record), HasSubstr("Warning: the loss is not finite from iteration 7 on"));
}

TEST(BenchSummary, HasTheWorkshopsLines) {
  const std::string text = text_of(record_of(), true);
  for (const char* line :
       {"Performance Summary:\n", "Network: resnet50\n", "Batch size: 8\n",
        "Iterations: 10 (excluding warmup)\n", "Precision: FP32\n",
        "Average time per iteration: 0.1000 seconds\n", "Throughput: 80.0 samples/sec\n",
        "GPU Memory Usage: 57 MB\n", "Milliseconds per batch: 100.000\n",
        "Microseconds per sample: 12500.0\n", "Images per second: 80.0\n",
        "Products: 3.00 GMACs an image, 0.48 TFLOP/s\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

// What is in the sum is named.
TEST(BenchSummary, SaysWhatTheMemoryIsFor) {
  EXPECT_THAT(text_of(record_of()), HasSubstr("in MB: parameters 46.8, packed weights 10.2\n"));
}

TEST(BenchSummary, CountsTokensOfALanguageModel) {
  Record record = record_of();
  record.options = default_options("tiny_llama");
  record.workload = {.name = "tiny_llama", .sample = "sequence", .tokens_per_sample = 128};
  const std::string text = text_of(record);
  EXPECT_THAT(text, HasSubstr("Token rate: 10240 tokens/sec\n"));
  EXPECT_THAT(text, HasSubstr("Sequences per second: 80.0\n"));
}

}  // namespace
}  // namespace ridge
