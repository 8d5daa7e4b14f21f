#include "ridge/session/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ridge {
namespace {

using ::testing::ElementsAre;

StepReport step(std::int64_t number, double seconds, double loss) {
  return {.step = number,
          .loss = loss,
          .seconds = seconds,
          .forward_seconds = seconds * 0.5,
          .backward_seconds = seconds * 0.25,
          .optimizer_seconds = seconds * 0.125,
          .live_bytes = static_cast<std::size_t>(number) * 1000};
}

TrainOptions options(std::int64_t warmup_steps) {
  TrainOptions o{.batch_size = 4,
                 .seq_len = 32,
                 .gradient_accumulation_steps = 2,
                 .warmup_steps = warmup_steps};
  o.resolve();
  return o;
}

RunRecord record() {
  return {.steps = {step(1, 8, 7.0), step(2, 1, 6.5), step(3, 2, 6.25), step(4, 3, 6.0)},
          .validation = {{2, 6.75}},
          .peak_tensor_bytes = 12'345'678,
          .cost = StepCost{.forward = {.flops = 100, .causal_flops = 80},
                           .backward = {.flops = 200, .causal_flops = 160},
                           .optimizer = {.flops = 20, .causal_flops = 20}}};
}

TEST(Summary, LeavesOutTheWarmUp) {
  const PerformanceSummary s = summarize(options(1), record());
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
  EXPECT_DOUBLE_EQ(s.mean_live_bytes, 2500.0);
}

TEST(Summary, CoversAllStepsWhenThereAreOnlyWarmUpSteps) {
  for (const std::int64_t warmup : {0, 4, 5}) {
    const PerformanceSummary s = summarize(options(warmup), record());
    EXPECT_EQ(s.steps_left_out, 0) << warmup;
    EXPECT_DOUBLE_EQ(s.step.mean, 3.5) << warmup;
  }
  EXPECT_EQ(summarize(options(3), record()).step.count, 1u);
}

TEST(Summary, OfNoStepsIsZero) {
  const PerformanceSummary s = summarize(options(3), {});
  EXPECT_EQ(s.steps, 0);
  EXPECT_EQ(s.samples_per_second, 0);
  EXPECT_EQ(s.mean_live_bytes, 0);
}

nlohmann::json json_of(const TrainOptions& o, const RunRecord& r) {
  return nlohmann::json::parse(performance_json(
      o, r, summarize(o, r), {.host = "h", .cpu = "c", .ridge_version = "1", .threads = 3},
      "2026-01-31T12:00:00Z"));
}

TEST(PerformanceJson, HasTheKeysOfTheWorkshop) {
  const nlohmann::json json = json_of(options(1), record());
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
  EXPECT_EQ(summary["avg_memory_mb"], 0.0025);
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
  RunRecord r = record();
  EXPECT_FALSE(json_of(options(1), r)["performance_summary"].contains("skipped_steps"));
  for (StepReport& step : r.steps) step.loss_scale = step.next_loss_scale = 512;
  r.steps[1].skipped = r.steps[2].skipped = true;
  r.steps.back().next_loss_scale = 1024;
  const nlohmann::json summary = json_of(options(1), r)["performance_summary"];
  EXPECT_EQ(summary["skipped_steps"], 2);
  EXPECT_EQ(summary["final_loss_scale"], 1024);
}

TEST(PerformanceJson, WritesNullForWhatIsNoNumber) {
  RunRecord r = record();
  r.outcome = Outcome::diverged;
  r.steps.push_back(step(5, 1, std::numeric_limits<double>::quiet_NaN()));
  const nlohmann::json summary = json_of(options(1), r)["performance_summary"];
  EXPECT_EQ(summary["outcome"], "diverged");
  EXPECT_TRUE(summary["final_loss"].is_null());
  EXPECT_TRUE(summary["losses"].back().is_null());
  EXPECT_TRUE(json_of(options(1), {})["performance_summary"]["final_loss"].is_null());
}

}  // namespace
}  // namespace ridge
