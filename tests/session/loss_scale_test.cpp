// Dynamic loss scaling, on a processor and in f32: the arithmetic is that of f16 on a GPU, and what
// it must not change can be compared to the bit.

#include "ridge/ops/loss_scale.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "ridge/cpu/device.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/op.h"
#include "ridge/ops/reduce.h"
#include "ridge/ops/silu.h"
#include "ridge/passes/passes.h"
#include "ridge/run/executor.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/optimizer.h"
#include "tests/base/temporary_directory.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

using testing::Reals;
constexpr float infinity = std::numeric_limits<float>::infinity();

// What UpdateLossScale makes of a state and a norm: by the kernel, which the reference agrees with.
struct ScaledSteps {
  double scale = 0, good_steps = 0, updates = 0;
  Reals step, report;
};
ScaledSteps outcome_of(const UpdateLossScale& op, double scale, double good_steps, double updates,
                       double norm) {
  const std::vector<TensorType> in{
      {DType::f32, {}}, {DType::f32, {2}}, {DType::f32, {3}}, {DType::f32, {}}};
  const std::vector<TensorType> out = op.infer(in);
  const std::vector<Reals> values{{scale}, {good_steps, updates}, {0.25, 7.0, 9.0}, {norm}};
  CpuDevice device(1);
  const auto expected = testing::run_reference(op, in, out, values);
  std::vector<Reals> actual;
  for (const auto& bytes : testing::run_kernel(device, op, in, out, values))
    actual.push_back(testing::decode(bytes, DType::f32));
  for (std::size_t o = 0; o < out.size(); ++o)
    testing::expect_close(actual[o], expected[o], {1e-7, 1e-6});
  return {actual[0][0], actual[1][0], actual[1][1], actual[2], actual[3]};
}

TEST(UpdateLossScale, CountsGoodStepsAndGrowsAfterEnoughOfThem) {
  const UpdateLossScale op{.rule = {.growth_interval = 3}, .beta1 = 0.9, .beta2 = 0.99};
  const ScaledSteps second = outcome_of(op, 1024, 1, 4, 512);
  EXPECT_EQ(second.scale, 1024);
  EXPECT_EQ(second.good_steps, 2);
  EXPECT_EQ(second.updates, 5);
  EXPECT_EQ(second.step[0], 0.25) << "the learning rate";
  EXPECT_FLOAT_EQ(static_cast<float>(second.step[1]), static_cast<float>(1 - std::pow(0.9, 5)));
  EXPECT_FLOAT_EQ(static_cast<float>(second.step[2]), static_cast<float>(1 - std::pow(0.99, 5)));
  EXPECT_EQ(second.step[3], 1.0 / 1024);
  EXPECT_EQ(second.report, (Reals{0.5, 1024, 1024}));
  const ScaledSteps third = outcome_of(op, 1024, 2, 5, 512);
  EXPECT_EQ(third.scale, 2048);
  EXPECT_EQ(third.good_steps, 0);
  EXPECT_EQ(third.step[3], 1.0 / 1024) << "of the scale that the gradients have";
  EXPECT_EQ(third.report, (Reals{0.5, 1024, 2048}));
}

TEST(UpdateLossScale, BacksOffAndSkipsWhereTheNormIsNotFinite) {
  for (const float norm : {infinity, -infinity, std::nanf("")}) {
    const ScaledSteps o = outcome_of({}, 1024, 1999, 5, norm);
    EXPECT_EQ(o.scale, 512);
    EXPECT_EQ(o.good_steps, 0);
    EXPECT_EQ(o.updates, 5);
    EXPECT_EQ(o.step[3], 0);
    EXPECT_EQ(o.report, (Reals{infinity, 1024, 512}));
  }
}

TEST(UpdateLossScale, StaysFiniteAndAboveZero) {
  const UpdateLossScale grows{.rule = {.growth_interval = 1}};
  EXPECT_EQ(outcome_of(grows, 0x1p126, 0, 0, 1).scale, 0x1p127);
  EXPECT_EQ(outcome_of(grows, 0x1p127, 0, 0, 1).scale, 0x1p127);
  EXPECT_EQ(outcome_of({}, 0x1p-126, 0, 0, infinity).scale, 0x1p-126);
}

TEST(AdamW, LeavesEverythingWhereTheStepIsSkipped) {
  CpuDevice device(2);
  const TensorType x{DType::f32, {37}}, copy{DType::bf16, {37}};
  const AdamWAll op{
      .each = {.max_norm = 1.0, .scaled = true}, .zero_grad = true, .copied = {true, false}};
  const std::vector<TensorType> in{
      {DType::f32, {4}}, {DType::f32, {}}, x, x, x, x, x, x, x, x, copy};
  std::vector<Reals> values{{0.1, 0.0, 0.0, 0.0}, {infinity}};
  for (std::size_t i = 2; i < in.size(); ++i)
    values.push_back(testing::sample_values({in[i]}, in[i].dtype, i));
  values[3][7] = infinity;
  const std::vector<TensorType> out = op.infer(in);
  const auto expected = testing::run_reference(op, in, out, values);
  const auto bytes = testing::run_kernel(device, op, in, out, values);
  for (std::uint32_t o = 0; o < out.size(); ++o) {
    SCOPED_TRACE(o);
    const Reals actual = testing::decode(bytes[o], out[o].dtype);
    EXPECT_EQ(actual, expected[o]);
    const bool is_gradient = o == 3 || o == 7;
    EXPECT_EQ(actual, is_gradient ? Reals(37, 0.0) : values[op.aliased_input(o, in)->input]);
  }
}

constexpr std::int64_t columns = 5;

// loss = sum(c silu(w x)) over two parameters.
struct ScaledModel {
  Graph graph;
  Value x = graph.input("x", {DType::f32, {1, columns}});
  Value c = graph.input("c", {DType::f32, {7, columns}});
  Value a = graph.parameter("a", {7, columns}, Init::normal(1.0f));
  Value b = graph.parameter("b", {7, columns}, Init::ones());
  TrainingStep training;
  AdamWConfig config;

  ScaledModel(std::optional<LossScaling> scaling, std::int64_t accumulation, double max_norm,
              bool fused)
      : config{.max_grad_norm = max_norm, .loss_scaling = scaling} {
    training = add_training_step(add(term(a), term(b)), config, {accumulation});
    if (fused) {
      EXPECT_GT(fuse_optimizer(graph), 0u);
    }
  }

  Value term(Value w) const { return sum_to(mul(silu(mul(w, x)), c), {}); }

  // A step on data number `data`, which is the t-th that updates anything, if that is not counted
  // on the device.
  void step(Executor& executor, int data, int t = 99) const {
    for (const Value& sum : training.accumulators) executor.fill_zero(sum);
    for (int micro = 0; micro < (training.accumulators.empty() ? 1 : 2); ++micro) {
      std::vector<float> xs(columns), cs(7 * columns);
      for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = 0.3f * static_cast<float>(i) - 0.5f;
      for (std::size_t i = 0; i < cs.size(); ++i)
        cs[i] = static_cast<float>(i * 7 % 11) - 5.0f + 0.25f * static_cast<float>(data + micro);
      executor.write(x, std::span<const float>(xs));
      executor.write(c, std::span<const float>(cs));
      executor.write(training.schedule,
                     std::span<const float>(optimizer_schedule(config, 1e-2, t)));
      executor.run(Phase::forward);
      executor.run(Phase::backward);
    }
    executor.run(Phase::optimizer);
  }

  // Parameters and moments.
  std::vector<std::vector<float>> state(Executor& executor) {
    std::vector<std::vector<float>> all;
    for (const char* name : {"a", "b", "a.exp_avg", "b.exp_avg", "a.exp_avg_sq", "b.exp_avg_sq"})
      all.push_back(executor.read_floats(graph.find(name)));
    return all;
  }
};

class LossScaledTraining : public ::testing::Test {
 protected:
  template <class F>
  void for_all_kinds(const F& check) {
    for (const std::int64_t accumulation : {1, 2})
      for (const double max_norm : {0.0, 0.5})
        for (const bool fused : {false, true}) {
          SCOPED_TRACE(fmt::format("{} batches, norm {}, {}", accumulation, max_norm,
                                   fused ? "fused" : "apart"));
          check(accumulation, max_norm, fused);
        }
  }
  CpuDevice device_{2};
};

TEST_F(LossScaledTraining, GivesTheBitsOfTrainingWithoutWhateverThePowerOfTwo) {
  for_all_kinds([&](std::int64_t accumulation, double max_norm, bool fused) {
    ScaledModel plain({}, accumulation, max_norm, fused);
    ScaledModel scaled(LossScaling{.initial = 65536, .growth_interval = 2}, accumulation, max_norm,
                       fused);
    Executor one(plain.graph, device_), other(scaled.graph, device_);
    one.initialize(5);
    other.initialize(5);
    for (int t = 1; t <= 5; ++t) {
      plain.step(one, t, t);
      scaled.step(other, t);
      EXPECT_EQ(scaled.state(other), plain.state(one)) << t;
      if (max_norm > 0) {
        EXPECT_EQ(other.read_scalar(scaled.training.grad_norm),
                  one.read_scalar(plain.training.grad_norm));
      }
    }
    EXPECT_EQ(other.read_scalar(scaled.training.loss_scale), 4 * 65536.0f);
    EXPECT_EQ(other.read_floats(scaled.graph.find("loss_scale.counters")),
              (std::vector{1.0f, 5.0f}));
  });
}

// Gradients of some tens overflow with a scale of 2^127: the steps up to the first that does not
// change nothing but the scale, and count for nothing afterwards.
TEST_F(LossScaledTraining, SkipsStepsThatOverflow) {
  for_all_kinds([&](std::int64_t accumulation, double max_norm, bool fused) {
    ScaledModel plain({}, accumulation, max_norm, fused);
    ScaledModel scaled(LossScaling{.initial = 0x1p127f}, accumulation, max_norm, fused);
    Executor one(plain.graph, device_), other(scaled.graph, device_);
    one.initialize(5);
    other.initialize(5);
    int skipped = 0;
    while (skipped < 64) {
      const auto before = scaled.state(other);
      scaled.step(other, skipped + 1);
      const std::vector<float> report = other.read_floats(scaled.training.scale_report);
      if (std::isfinite(report[0])) break;
      ++skipped;
      EXPECT_EQ(scaled.state(other), before);
      EXPECT_EQ(report, (std::vector{infinity, std::ldexp(1.0f, 128 - skipped),
                                     std::ldexp(1.0f, 127 - skipped)}));
      EXPECT_EQ(other.read_scalar(scaled.training.loss_scale), report[2]);
    }
    ASSERT_GT(skipped, 0);
    ASSERT_LT(skipped, 64);
    EXPECT_EQ(other.read_floats(scaled.graph.find("loss_scale.counters")),
              (std::vector{1.0f, 1.0f}));
    // From then on it is training without scaling, that begins with these data.
    for (int t = 1; t <= 3; ++t) {
      plain.step(one, skipped + t, t);
      if (t > 1) scaled.step(other, skipped + t);
      const auto actual = scaled.state(other), wanted = plain.state(one);
      // So near the end of f32's range, what clips is too small for all of its digits.
      if (max_norm == 0) {
        EXPECT_EQ(actual, wanted) << t;
      }
      for (std::size_t i = 0; i < wanted.size(); ++i)
        for (std::size_t k = 0; k < wanted[i].size(); ++k)
          ASSERT_NEAR(actual[i][k], wanted[i][k], 1e-9 + 1e-5 * std::abs(wanted[i][k])) << t;
    }
  });
}

TEST_F(LossScaledTraining, GoesOnFromACheckpoint) {
  const TemporaryDirectory directory;
  const auto path = directory.path / "checkpoint";
  const LossScaling scaling{.initial = 0x1p126f, .growth_interval = 2};
  RunOptions options;
  options.resolve();
  ScaledModel undisturbed(scaling, 1, 0.5, true), resumed(scaling, 1, 0.5, false);
  Executor one(undisturbed.graph, device_), other(resumed.graph, device_);
  one.initialize(5);
  other.initialize(6);
  constexpr int saved = 4, last = 12;  // before the scale has become small enough, and after
  for (int t = 1; t <= last; ++t) {
    undisturbed.step(one, t);
    if (t == saved) write_checkpoint(path, options, t, undisturbed.graph, one);
  }
  EXPECT_EQ(read_checkpoint(path, options, resumed.graph, other), saved);
  for (int t = saved + 1; t <= last; ++t) resumed.step(other, t);
  EXPECT_EQ(resumed.state(other), undisturbed.state(one));
  for (const char* name : {"loss_scale", "loss_scale.counters"})
    EXPECT_EQ(other.read_floats(resumed.graph.find(name)),
              one.read_floats(undisturbed.graph.find(name)));
  const std::vector<float> counters =
      one.read_floats(undisturbed.graph.find("loss_scale.counters"));
  EXPECT_GT(counters[1], 0) << "there were updates";
  EXPECT_LT(counters[1], last - saved) << "and skipped steps on both sides";
}

TEST_F(LossScaledTraining, TakesNoPartInTrainingWithout) {
  ScaledModel plain({}, 1, 0.0, false);
  EXPECT_FALSE(plain.training.loss_scale);
  EXPECT_FALSE(plain.training.scale_report);
  for (const Node& node : plain.graph.nodes()) {
    EXPECT_FALSE(std::holds_alternative<UpdateLossScale>(node.op->variant()));
    EXPECT_FALSE(std::holds_alternative<GlobalNorm>(node.op->variant()));
  }
}

}  // namespace
}  // namespace ridge
