#include "ridge/analyze/plan_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/session/workload.h"
#include "ridge/study/definition.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

RunOptions small_plan_options() {
  RunOptions options = small_llama({.vocab_size = 40, .batch_size = 2, .seq_len = 16});
  options.resolve();
  return options;
}

std::size_t bytes_with(RunOptions options, std::int64_t RunOptions::*size, std::int64_t value) {
  CpuDevice device(1);
  options.*size = value;
  options.resolve();
  return plan_step(options, device).device_bytes;
}

TEST(PlanSearch, FindsTheLongestSequence) {
  CpuDevice device(1);
  const RunOptions options = small_plan_options();
  const std::size_t budget = bytes_with(options, &RunOptions::seq_len, 77);
  const PlanSearch search = search_plans(options, device, "seq-len", budget, nullptr);
  EXPECT_EQ(search.limit.size, 77);
  EXPECT_EQ(search.limit.peak_bytes, budget);
  EXPECT_EQ(search.limit.next_peak_bytes, bytes_with(options, &RunOptions::seq_len, 78));
  std::vector<std::int64_t> sizes;
  for (const PlannedSize& one : search.sizes) sizes.push_back(one.size);
  EXPECT_THAT(sizes, ::testing::ElementsAre(32, 64, 77));
  ASSERT_TRUE(search.alone);
  EXPECT_GT(search.alone->size, 77) << "with a batch of 1";
  for (const PlannedSize& one : search.sizes) {
    double sum = 0;
    for (const auto& [name, bytes] : peak_by_component(one.plan)) sum += bytes;
    EXPECT_DOUBLE_EQ(sum, static_cast<double>(one.plan.memory.peak_bytes));
  }
}

TEST(PlanSearch, FindsTheLargestImage) {
  CpuDevice device(1);
  RunOptions options = default_options("resnet18");
  options.mode = "inference";
  options.batch_size = 1;
  options.resolve();
  const std::size_t budget = bytes_with(options, &RunOptions::image_size, 96);
  const PlanSearch search = search_plans(options, device, "image-size", budget, nullptr);
  EXPECT_EQ(search.limit.size, 96);
  EXPECT_EQ(search.limit.next_peak_bytes, bytes_with(options, &RunOptions::image_size, 128));
  EXPECT_FALSE(search.alone) << "the batch is 1";
  EXPECT_THAT(searchable(options), ::testing::ElementsAre("batch-size", "image-size"));
  EXPECT_THROW(search_plans(options, device, "model", budget, nullptr), UsageError);
}

TEST(PlanSearch, FindsTheLargestModel) {
  CpuDevice device(1);
  RunOptions options = small_plan_options();
  const std::size_t now = plan_step(options, device).device_bytes;
  const PlanSearch search = search_plans(options, device, "model", 20 * now, nullptr);
  ASSERT_TRUE(search.model && search.next_model);
  EXPECT_LE(search.sizes.at(0).plan.device_bytes, 20 * now);
  EXPECT_GT(search.sizes.at(1).plan.device_bytes, 20 * now);
  EXPECT_EQ(plan_step(*search.model, device).parameter_count, search.limit.size);
  EXPECT_GT(search.model->hidden_dim, options.hidden_dim);
  EXPECT_GT(search.model->n_layers, options.n_layers);
}

// From the workshop's smallest model on it comes near to all of the others.
TEST(ScaledModels, HaveTheProportionsOfTheWorkshop) {
  RunOptions tiny;
  tiny.resolve();
  const std::vector<RunOptions> models = family_of(tiny.network).scaled(tiny);
  for (std::size_t i = 1; i < models.size(); ++i) {
    EXPECT_GT(models[i].hidden_dim, models[i - 1].hidden_dim);
    EXPECT_GE(models[i].n_layers, models[i - 1].n_layers);
    EXPECT_GE(models[i].n_heads, models[i - 1].n_heads);
    RunOptions resolved = models[i];
    resolved.resolve();
  }
  for (const char* name : {"tiny", "very_large"}) {
    const StudySize& size = study_size(name);
    const auto model = std::ranges::find(models, size.hidden_dim, &RunOptions::hidden_dim);
    ASSERT_NE(model, models.end()) << name;
    EXPECT_EQ(model->n_layers, size.n_layers) << name;
    EXPECT_EQ(model->n_heads, size.n_heads) << name;
    EXPECT_EQ(model->intermediate_dim, 2 * size.hidden_dim) << name;
  }
}

PlannedSize of_rate(std::int64_t size, double samples_per_second) {
  PlannedSize one{.size = size, .plan = {}, .samples = 1, .against = {}};
  one.plan.at_best = LeastTime{.computing = 1 / samples_per_second};
  return one;
}

TEST(BestBatch, IsTheLeastWhoseDoublingsGainLittle) {
  PlanSearch search{.of = "batch-size"};
  search.sizes = {of_rate(1, 10), of_rate(2, 18), of_rate(4, 20), of_rate(8, 20.5),
                  of_rate(12, 21)};
  ASSERT_TRUE(best_batch(search));
  EXPECT_EQ(best_batch(search)->size, 4);
  search.sizes[4] = of_rate(12, 21.5);  // 4.9 % by no whole doubling
  EXPECT_FALSE(best_batch(search));
}

TEST(PlanDifference, SaysWhatRecomputationSavesAndCosts) {
  CpuDevice device(1);
  const RunOptions options = small_plan_options();
  const std::vector<std::string> changes{"recompute=block"};
  const PlanDifference d = plan_difference(options, changes, device, 1 << 20, nullptr);
  EXPECT_EQ(d.changes, "--recompute block");
  EXPECT_EQ(d.options.recompute, "block");
  EXPECT_LT(d.to.memory.peak_bytes, d.from.memory.peak_bytes);
  EXPECT_GT(d.to.cost.total().flops, d.from.cost.total().flops);
  EXPECT_GT(d.to_batch.size, d.from_batch.size);
  EXPECT_THAT([&] { changed_options(options, std::vector<std::string>{"nothing=1"}); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("no such option")));
  EXPECT_THAT([&] { changed_options(options, std::vector<std::string>{"recompte=block"}); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("did you mean recompute?")));
  EXPECT_THAT([&] { changed_options(options, std::vector<std::string>{"dtype"}); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("NAME=VALUE")));
}

}  // namespace
}  // namespace ridge
