// Each pass, alone and with all others, leaves the loss, every gradient and every updated parameter
// of random models what they were, in double precision: rewriting rounds nothing.

#include "ridge/passes/passes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "ridge/base/random.h"
#include "ridge/graph/op_rules.h"
#include "ridge/passes/schedules.h"
#include "ridge/run/reference.h"
#include "ridge/session/optimizer.h"
#include "tests/passes/random_model.h"

namespace ridge {
namespace {

std::vector<double> content_of(const ValueInfo& info, std::uint64_t seed) {
  std::vector<double> content(static_cast<std::size_t>(info.type.numel()), 0.0);
  if (info.type.dtype == DType::i32) {
    std::mt19937_64 random(seed ^ stream_of(info.name));
    for (double& x : content) x = static_cast<double>(random() % RandomModel::vocabulary);
  } else if (info.role == Role::parameter) {
    std::vector<float> floats(content.size());
    fill_normal(floats, 0.5f, seed, stream_of(info.name), 0);
    content.assign(floats.begin(), floats.end());
  } else if (info.role == Role::optimizer_state) {
    content.assign(content.size(), 0.25);
  }
  return content;
}

// By name: the loss, gradients, updated parameters and their state.
using Results = std::map<std::string, std::vector<double>>;

struct Rewritten {
  Results results;
  std::map<std::string, std::size_t> operators;
};

using PassNames = std::set<std::string_view>;

Rewritten run_model(std::uint64_t seed, const PassNames& enabled, Recompute recompute) {
  Graph graph;
  const RandomModel model(graph, seed);
  Schedule schedule{.target = {.least_update_bytes = 1}, .recompute = recompute};
  for (const Pass& pass : passes())
    if (enabled.contains(pass.name) ||
        (pass.chosen_by == ChosenBy::recompute && recompute != Recompute::none))
      schedule.passes.push_back(&pass);
  PassRun run{.schedule = schedule};
  apply_passes(graph, Stage::forward, run);
  const TrainingStep step = add_training_step(
      model.loss, AdamWConfig{.max_grad_norm = seed % 2 ? 0.5 : 0.0}, {seed % 3 ? 1 : 2});
  apply_passes(graph, Stage::step, run);

  ReferenceValues fed;
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent) fed[id] = content_of(graph.info(id), seed);
  fed[step.schedule.id] = {1e-3, 0.1, 0.001};
  const ReferenceValues values = evaluate_reference(graph, std::move(fed));
  Rewritten rewritten;
  for (const Node& node : graph.nodes()) {
    const OpVariant& op = node.op->variant();
    const auto* logits = std::get_if<CrossEntropyGrad>(&op);
    const auto* gates = std::get_if<SwiGluGrad>(&op);
    const auto* norm = std::get_if<RmsNormGrad>(&op);
    const auto* sum = std::get_if<AddRmsNormGrad>(&op);
    const auto* products = std::get_if<LinearSwiGluGrad>(&op);
    const bool in_place = (logits && logits->in_place) || (gates && gates->in_place) ||
                          (products && products->in_place);
    const bool halves = std::ranges::any_of(
        node.inputs, [&](ValueId in) { return graph.info(in).type.dtype == DType::split_f32; });
    const bool from_result = (norm && norm->from_result) || (sum && sum->from_result);
    ++rewritten
          .operators[fmt::format("{}{}{}{}", name_of(*node.op), in_place ? " in place" : "",
                                 from_result ? " from result" : "", halves ? " in halves" : "")];
  }
  rewritten.results["loss"] = values.at(model.loss.id);
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const std::string name = graph.info(step.parameters[i].id).name;
    rewritten.results[name] = values.at(step.parameters[i].id);
    rewritten.results[name + ".grad"] =
        values.at((step.accumulators.empty() ? step.gradients : step.accumulators)[i].id);
  }
  return rewritten;
}

void expect_equal(const Results& got, const Results& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, expected] : want) {
    const std::vector<double>& actual = got.at(name);
    ASSERT_EQ(actual.size(), expected.size()) << what << ": " << name;
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 1e-9 * std::max(1.0, std::abs(expected[i])))
          << what << ": " << name << "[" << i << "]";
  }
}

std::uint64_t seeds() {
  const char* many = std::getenv("RIDGE_RANDOM_GRAPHS");
  return many ? std::strtoull(many, nullptr, 10) : 60;
}

// Without those that round: what a precision means.
bool rewrites_training(const Pass& pass) {
  return pass.use != Use::inference && pass.stage != Stage::run &&
         pass.chosen_by == ChosenBy::schedule && !pass.of_ranks &&
         pass.precisions.contains(precision_named("fp32"));
}

PassNames all_passes() {
  PassNames names;
  for (const Pass& pass : passes())
    if (rewrites_training(pass)) names.insert(pass.name);
  return names;
}

TEST(PassesTest, EachAloneLeavesRandomModelsWhatTheyWere) {
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    const Results want = run_model(seed, {}, Recompute::none).results;
    for (const Pass& pass : passes()) {
      if (!rewrites_training(pass)) continue;
      PassNames names;
      for (const Pass& other : passes())
        if (needs(pass, other.name)) names.insert(other.name);
      expect_equal(run_model(seed, names, Recompute::none).results, want,
                   fmt::format("seed {}, {}", seed, pass.name));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PassesTest, AllButOneAndAllTogetherLeaveRandomModelsWhatTheyWere) {
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    const Results want = run_model(seed, {}, Recompute::none).results;
    for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::block}) {
      expect_equal(run_model(seed, all_passes(), recompute).results, want,
                   fmt::format("seed {}, all, recompute {}", seed, name_of(recompute)));
      expect_equal(run_model(seed, {}, recompute).results, want,
                   fmt::format("seed {}, recompute {}", seed, name_of(recompute)));
      if (HasFatalFailure()) return;
    }
    for (const Pass& pass : passes()) {
      if (!rewrites_training(pass)) continue;
      PassNames names = all_passes();
      std::erase_if(names,
                    [&](std::string_view name) { return needs(pass_named(name), pass.name); });
      expect_equal(run_model(seed, names, Recompute::none).results, want,
                   fmt::format("seed {}, all but {}", seed, pass.name));
      if (HasFatalFailure()) return;
    }
  }
}

// A generator that builds nothing for a pass to find would prove nothing about it.
TEST(PassesTest, RandomModelsHaveWorkForEveryPass) {
  for (const Pass& pass : passes()) {
    if (!rewrites_training(pass)) continue;
    std::size_t changed = 0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      PassNames without = all_passes();
      std::erase_if(without,
                    [&](std::string_view name) { return needs(pass_named(name), pass.name); });
      changed += run_model(seed, all_passes(), Recompute::none).operators !=
                 run_model(seed, without, Recompute::none).operators;
    }
    EXPECT_GE(changed, 5u) << pass.name;
  }
}

// A scalar has no rows that could be packed; what is read in f32 has to lie as f32.
TEST(SplitWeights, LeavesScalarsAndWhatIsReadInF32) {
  Graph graph;
  const Value x = graph.input("x", {DType::bf16, {2, 3}});
  const Value w = graph.parameter("w", {3}, Init::ones());
  const Value both = graph.parameter("both", {3}, Init::ones());
  const Value scalar = graph.parameter("scalar", {}, Init::ones());
  Value y = x;
  for (const Value& parameter : {w, both, scalar}) y = mul(y, cast(parameter, DType::bf16));
  const Value loss = sum_to(mul(cast(y, DType::f32), both), {});
  add_training_step(loss, {});
  fuse_optimizer(graph);
  EXPECT_GT(rounded_weights(graph), 0u);
  EXPECT_EQ(split_weights(graph), 1u);
  EXPECT_EQ(graph.find("w.split").dtype(), DType::split_f32);
  EXPECT_EQ(graph.info(graph.find("w.bf16").id).whole, graph.find("w.split").id);
  for (const char* name : {"both", "scalar"}) {
    EXPECT_FALSE(graph.find(fmt::format("{}.split", name)));
    EXPECT_EQ(graph.info(graph.find(fmt::format("{}.bf16", name)).id).whole, no_value);
  }
  EXPECT_EQ(split_weights(graph), 0u) << "twice";
}

}  // namespace
}  // namespace ridge
