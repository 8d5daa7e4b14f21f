#include "ridge/session/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StepReport step(std::int64_t number, double seconds, double loss) {
  return {.step = number,
          .loss = loss,
          .seconds = seconds,
          .device_seconds = seconds * 0.875,
          .forward_seconds = seconds * 0.5,
          .backward_seconds = seconds * 0.25,
          .optimizer_seconds = seconds * 0.125};
}

Record record(std::int64_t warmup_steps = 1) {
  Record record{
      .options = {.batch_size = 4, .seq_len = 32, .gradient_accumulation_steps = 2},
      .system = {.host = "h", .cpu = "c", .ridge_version = "1", .threads = 3},
      .timestamp = "2026-01-31T12:00:00Z",
      .parameters = 2'873'600,
      .samples_per_step = 8,
      .cost = StepCost{.forward = {.flops = 100, .macs = 50, .causal_flops = 80},
                       .backward = {.flops = 200, .macs = 100, .causal_flops = 160},
                       .optimizer = {.flops = 20, .causal_flops = 20}},
      .steps = {step(1, 8, 7.0), step(2, 1, 6.5), step(3, 2, 6.25), step(4, 3, 6.0)},
      .warmup_steps = warmup_steps,
      .validation = {{2, {.loss = 6.75, .samples = 4}}},
      .peak_tensor_bytes = 12'345'678,
      .mean_tensor_bytes = 7.5e6,
      .at_peak = {.parameters = 4'000'000, .intermediates = 5'000'000, .packed = 3'345'678}};
  record.options.resolve();
  record.workload = workload_of(record.options).info;
  return record;
}

TEST(Summary, LeavesOutTheWarmUp) {
  const Summary s = summarize(record());
  EXPECT_EQ(s.steps, 4);
  EXPECT_EQ(s.steps_left_out, 1);
  EXPECT_EQ(s.step.count, 3u);
  EXPECT_DOUBLE_EQ(s.step.mean, 2);
  EXPECT_DOUBLE_EQ(s.step.std_dev, 1);
  EXPECT_DOUBLE_EQ(s.forward.mean, 1);
  EXPECT_DOUBLE_EQ(s.backward.mean, 0.5);
  EXPECT_DOUBLE_EQ(s.optimizer.mean, 0.25);
  EXPECT_EQ(s.total_samples, 4 * 8) << "the samples of all steps";
  EXPECT_DOUBLE_EQ(s.samples_per_second, 4.0) << "8 samples in a step of 2 seconds";
  EXPECT_DOUBLE_EQ(s.tokens_per_second, 128.0);
  EXPECT_DOUBLE_EQ(s.flops_per_second, 160.0);
  EXPECT_DOUBLE_EQ(s.causal_flops_per_second, 130.0);
  EXPECT_DOUBLE_EQ(s.macs_per_second, 75.0);
}

TEST(Summary, CoversAllStepsWhenThereAreOnlyWarmUpSteps) {
  for (const std::int64_t warmup : {0, 4, 5}) {
    const Summary s = summarize(record(warmup));
    EXPECT_EQ(s.steps_left_out, 0) << warmup;
    EXPECT_DOUBLE_EQ(s.step.mean, 3.5) << warmup;
  }
  EXPECT_EQ(summarize(record(3)).step.count, 1u);
}

TEST(Summary, LeavesOutWhatWasRecorded) {
  Record r = record();
  r.recorded = {3};
  const Summary s = summarize(r);
  EXPECT_EQ(s.steps_left_out, 1);
  EXPECT_EQ(s.recorded_left_out, 1);
  EXPECT_DOUBLE_EQ(s.step.mean, 1.5);
  r.recorded = {1, 2, 3};
  EXPECT_DOUBLE_EQ(summarize(r).step.mean, 2) << "there are no others";
  EXPECT_EQ(summarize(r).recorded_left_out, 0);
}

// Where the phases of a step overlap they have no times; those of steps that ran them one by one
// are told as such.
TEST(Summary, HasNoTimesOfPhasesThatOverlap) {
  Record r = record();
  for (StepReport& step : r.steps) step.has_phases = false;
  EXPECT_EQ(summarize(r).phase_steps, 0);
  EXPECT_EQ(summarize(r).forward.count, 0u);
  r.steps[1].has_phases = true;  // among those that warm up
  r.warmup_steps = 2;
  const Summary s = summarize(r);
  EXPECT_EQ(s.phase_steps, 1);
  EXPECT_TRUE(s.phases_apart);
  EXPECT_DOUBLE_EQ(s.forward.mean, 0.5);
  EXPECT_DOUBLE_EQ(s.step.mean, 2.5) << "the step's time is that of the others";
}

TEST(Summary, OfNoStepsIsZero) {
  const Summary s = summarize({});
  EXPECT_EQ(s.steps, 0);
  EXPECT_EQ(s.samples_per_second, 0);
}

// Ten times of 100 ms for 8 images of 3 GMACs, but for the last.
Record benchmark(double last) {
  Record r{.options = default_options("resnet50"),
           .workload = {.name = "resnet50"},
           .samples_per_step = 8,
           .cost = StepCost{.forward = {.macs = 8 * 3'000'000'000}},
           .by_device = true};
  for (int i = 0; i < 10; ++i)
    r.steps.push_back(
        {.step = i + 1, .loss = 6.9, .seconds = 9, .device_seconds = i < 9 ? 0.1 : last});
  return r;
}

TEST(Summary, OfABenchmarkIsOverTheDevicesTime) {
  const Summary summary = summarize(benchmark(0.3));
  EXPECT_DOUBLE_EQ(summary.samples_per_second, 80 / 1.2);
  EXPECT_DOUBLE_EQ(summary.macs_per_second, 3e9 * 80 / 1.2);
  EXPECT_DOUBLE_EQ(summary.device.mean, 0.12);
  EXPECT_DOUBLE_EQ(summary.device.median, 0.1);
  EXPECT_TRUE(summary.p90.has_value());
  EXPECT_FALSE(summary.p99.has_value()) << "of ten times none lies beyond it";
}

TEST(Summary, TellsUnsteadyTimes) {
  EXPECT_FALSE(summarize(benchmark(0.1)).unsteady());
  EXPECT_FALSE(summarize(benchmark(0.105)).unsteady()) << "1.6 %";
  EXPECT_TRUE(summarize(benchmark(0.11)).unsteady()) << "3.1 %";
}

// Of the times 1 ms to 100 ms, each percentile is another.
TEST(Summary, HasPercentiles) {
  Record r = benchmark(0.1);
  r.steps.clear();
  for (int i = 1; i <= 200; ++i) r.steps.push_back({.step = i, .device_seconds = i * 1e-3});
  const Summary s = summarize(r);
  EXPECT_NEAR(*s.p90, 0.180, 2e-3);
  EXPECT_NEAR(*s.p95, 0.190, 2e-3);
  EXPECT_NEAR(*s.p99, 0.198, 2e-3);
  const auto json = nlohmann::json::parse(record_json(r, s))["performance_summary"];
  EXPECT_EQ(json["p90_device_time"], *s.p90);
  EXPECT_EQ(json["p95_device_time"], *s.p95);
  EXPECT_EQ(json["p99_device_time"], *s.p99);
}

TEST(TimesCsv, HasALineForEachStepThatCounts) {
  Record r = benchmark(0.3);
  r.warmup_steps = 2;
  r.recorded = {9};
  const std::string csv = times_csv(r);
  EXPECT_THAT(csv, HasSubstr("step,loss,seconds,recorded\n3,6.9,0.1,0\n"));
  EXPECT_THAT(csv, HasSubstr("\n10,6.9,0.3,1\n"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 9);
}

nlohmann::json json_of(const Record& r) {
  return nlohmann::json::parse(record_json(r, summarize(r)));
}

TEST(PerformanceJson, HasTheKeysOfTheWorkshop) {
  const nlohmann::json json = json_of(record());
  EXPECT_EQ(json["version"], "v1");
  EXPECT_EQ(json["timestamp"], "2026-01-31T12:00:00Z");
  EXPECT_EQ(json["config"]["hidden_dim"], 256);
  EXPECT_EQ(json["config"]["total_parameters"], 2'873'600);
  EXPECT_EQ(json["config"]["norm_eps"], 1e-6);
  EXPECT_EQ(json["training_params"]["batch_size"], 4);
  EXPECT_EQ(json["system_info"]["threads"], 3);
  const nlohmann::json& summary = json["performance_summary"];
  EXPECT_EQ(summary["outcome"], "completed");
  EXPECT_EQ(summary["total_samples"], 32);
  EXPECT_EQ(summary["avg_training_speed"], 4.0);
  EXPECT_EQ(summary["avg_batch_time"], 2.0);
  EXPECT_EQ(summary["avg_forward_time"], 1.0);
  EXPECT_EQ(summary["avg_backward_time"], 0.5);
  EXPECT_EQ(summary["avg_optimizer_time"], 0.25);
  EXPECT_EQ(summary["median_batch_time"], 2.0);
  EXPECT_EQ(summary["peak_memory_bytes"], 12'345'678);
  EXPECT_EQ(summary["peak_memory_mb"], 12.345678);
  EXPECT_EQ(summary["avg_memory_mb"], 7.5);
  EXPECT_EQ(summary["memory_at_peak_bytes"]["packed_weights"], 3'345'678);
  EXPECT_EQ(summary["memory_at_peak_bytes"]["intermediates"], 5'000'000);
  EXPECT_EQ(summary["final_loss"], 6.0);
  EXPECT_THAT(summary["losses"].get<std::vector<double>>(), ElementsAre(7.0, 6.5, 6.25, 6.0));
  EXPECT_EQ(summary["step_seconds"].size(), 4u);
  for (const char* phase : {"forward_seconds", "backward_seconds", "optimizer_seconds"})
    EXPECT_EQ(summary[phase].size(), 4u) << phase;
  EXPECT_EQ(summary["validation_losses"][0]["step"], 2);
  EXPECT_EQ(summary["validation_losses"][0]["loss"], 6.75);
  EXPECT_EQ(summary["flops_per_step"]["total"], 320);
  EXPECT_EQ(summary["flops_per_step"]["total_causal"], 260);
  EXPECT_EQ(summary["flops_per_step"]["backward"], 200);
}

TEST(PerformanceJson, TellsOfTheLossScaleWhereThereIsOne) {
  Record r = record();
  EXPECT_FALSE(json_of(r)["performance_summary"].contains("skipped_steps"));
  for (StepReport& step : r.steps) step.loss_scale = step.next_loss_scale = 512;
  r.steps[1].skipped = r.steps[2].skipped = true;
  r.steps.back().next_loss_scale = 1024;
  const nlohmann::json summary = json_of(r)["performance_summary"];
  EXPECT_EQ(summary["skipped_steps"], 2);
  EXPECT_EQ(summary["final_loss_scale"], 1024);
}

TEST(PerformanceJson, WritesNullForWhatIsNoNumber) {
  Record r = record();
  r.outcome = Outcome::diverged;
  r.steps.push_back(step(5, 1, std::numeric_limits<double>::quiet_NaN()));
  const nlohmann::json summary = json_of(r)["performance_summary"];
  EXPECT_EQ(summary["outcome"], "diverged");
  EXPECT_TRUE(summary["final_loss"].is_null());
  EXPECT_TRUE(summary["losses"].back().is_null());
  EXPECT_TRUE(json_of({})["performance_summary"]["final_loss"].is_null());
}

// A reader of these files finds a key under its name or not at all: the list is whole.
TEST(PerformanceJson, HasTheseKeys) {
  const auto keys = [](const nlohmann::json& json) {
    std::vector<std::string> names;
    for (const auto& [name, value] : json.items()) names.push_back(name);
    return names;
  };
  const nlohmann::json json = json_of(record());
  EXPECT_THAT(
      keys(json),
      ElementsAre("belief", "config", "description", "options", "performance_summary", "published",
                  "sample", "samples_per_step", "schema", "system_info", "timestamp", "title",
                  "tokens_per_sample", "training_params", "version", "work", "workload"));
  EXPECT_THAT(
      keys(json["performance_summary"]),
      ElementsAre("achieved_gflops", "achieved_gflops_causal", "avg_backward_time",
                  "avg_batch_time", "avg_device_time", "avg_forward_time", "avg_memory_mb",
                  "avg_optimizer_time", "avg_tokens_per_second", "avg_training_speed",
                  "backward_seconds", "compile_seconds", "device_seconds", "final_loss",
                  "first_step", "flops_per_step", "forward_seconds", "last_step", "losses",
                  "macs_per_step", "max_batch_time", "median_batch_time", "memory_at_peak_bytes",
                  "min_batch_time", "optimizer_seconds", "outcome", "p90_device_time",
                  "p95_device_time", "p99_device_time", "peak_memory_bytes", "peak_memory_mb",
                  "peak_resident_bytes", "peak_resident_mb", "phases_timed_one_after_the_other",
                  "recorded_steps", "recorded_steps_left_out", "reserved_memory_bytes",
                  "samples_per_second", "std_batch_time", "step_seconds",
                  "steps_left_out_of_averages", "tensor_allocations", "total_samples",
                  "total_seconds", "updates_in_backward", "validation_losses", "variation"));
}

}  // namespace
}  // namespace ridge
