#include "ridge/bench/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "ridge/bench/session.h"
#include "ridge/cpu/device.h"

namespace ridge {
namespace {

using testing::HasSubstr;
using testing::Not;

// Ten times of 100 ms for 8 images of 3 GMACs, but for the last.
BenchRecord record_of(double last) {
  BenchRecord record{.seconds = std::vector<double>(9, 0.1),
                     .losses = std::vector<double>(10, 6.9)};
  record.seconds.push_back(last);
  record.peak_tensor_bytes = 57'000'000;
  record.macs = 3'000'000'000;
  return record;
}

constexpr auto batch_of_8 = [] { return BenchOptions{.batch_size = 8, .iterations = 10}; };

TEST(BenchSummary, CountsImagesAndProductsOverAllTime) {
  const BenchSummary summary = summarize(batch_of_8(), record_of(0.3));
  EXPECT_DOUBLE_EQ(summary.samples_per_second, 80 / 1.2);
  EXPECT_DOUBLE_EQ(summary.flops_per_second, 2 * 3e9 * 80 / 1.2);
  EXPECT_DOUBLE_EQ(summary.iteration.mean, 0.12);
  EXPECT_DOUBLE_EQ(summary.iteration.median, 0.1);
  EXPECT_TRUE(summary.p90.has_value());
  EXPECT_FALSE(summary.p99.has_value()) << "of ten times none lies beyond it";
}

TEST(BenchSummary, WarnsOfTimesThatVary) {
  const auto text_of = [](double last) {
    const BenchRecord record = record_of(last);
    return summary_text(batch_of_8(), record, summarize(batch_of_8(), record), false);
  };
  EXPECT_THAT(text_of(0.1), Not(HasSubstr("Warning")));
  EXPECT_THAT(text_of(0.105), Not(HasSubstr("Warning"))) << "1.6 %";
  EXPECT_THAT(text_of(0.11), HasSubstr("Warning: the times vary by 3.1 %"));
}

TEST(BenchSummary, WarnsOfALossThatIsNotFinite) {
  BenchRecord record = record_of(0.1);
  record.losses[7] = std::numeric_limits<double>::quiet_NaN();
  const std::string text =
      summary_text(batch_of_8(), record, summarize(batch_of_8(), record), false);
  EXPECT_THAT(text, HasSubstr("Warning: the loss is not finite from iteration 7 on"));
}

TEST(BenchSummary, HasTheWorkshopsLines) {
  const BenchRecord record = record_of(0.1);
  const std::string text =
      summary_text(batch_of_8(), record, summarize(batch_of_8(), record), true);
  for (const char* line :
       {"Performance Summary:\n", "Network: resnet50\n", "Batch size: 8\n",
        "Iterations: 10 (excluding warmup)\n", "Precision: FP32\n",
        "Average time per iteration: 0.1000 seconds\n", "Throughput: 80.0 samples/sec\n",
        "GPU Memory Usage: 57 MB\n", "Milliseconds per batch: 100.000\n",
        "Microseconds per sample: 12500.0\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(BenchSummary, GivesJsonAndCsv) {
  const BenchRecord record = record_of(0.3);
  const auto json = nlohmann::json::parse(
      bench_json(batch_of_8(), record, summarize(batch_of_8(), record), {}, "now"));
  EXPECT_EQ(json["seconds"]["all"].size(), 10u);
  EXPECT_TRUE(json["seconds"]["p99"].is_null());
  EXPECT_EQ(json["loss"], 6.9);
  EXPECT_EQ(json["peak_memory_mb"], 57.0);
  EXPECT_THAT(times_csv(record), HasSubstr("iteration,loss,seconds,recorded\n0,6.9,0.1,0\n"));
  EXPECT_THAT(times_csv(record), HasSubstr("\n9,6.9,0.3,0\n"));
}

TEST(BenchSession, RepeatsItsLossWhichDependsOnTheSeed) {
  BenchOptions options{.network = "squeezenet1_1", .batch_size = 2, .image_size = 64};
  CpuDevice device(2);
  const auto loss_of = [&](std::int64_t seed) {
    options.seed = seed;
    BenchSession session(options, device);
    const double loss = session.iterate().loss;
    const BenchIteration again = session.iterate();
    EXPECT_EQ(again.loss, loss);
    EXPECT_GT(again.seconds, 0);
    return loss;
  };
  const double loss = loss_of(1);
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(loss_of(1), loss);
  EXPECT_NE(loss_of(2), loss);
}

}  // namespace
}  // namespace ridge
