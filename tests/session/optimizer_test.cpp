#include "ridge/session/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/op.h"
#include "ridge/ops/reduce.h"
#include "ridge/ops/silu.h"
#include "ridge/passes/passes.h"
#include "ridge/run/executor.h"
#include "ridge/run/reference.h"
#include "ridge/session/checkpoint.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t columns = 5;

// loss = sum(c silu(w x)) over three parameters, of which the first and the last may be packed; the
// gradients are the same to the last bit, because every element has its own. The rows are such that
// the parts are not aligned.
struct TunedModel {
  Graph graph;
  Value x = graph.input("x", {DType::f32, {1, columns}});
  Value c = graph.input("c", {DType::f32, {17, columns}});
  Value a = graph.parameter("a", {3, columns}, Init::normal(1.0f));
  Value b = graph.parameter("b", {7, columns}, Init::ones());
  Value d = graph.parameter("d", {7, columns}, Init::normal(1.0f));
  Value whole;
  Value loss;
  TrainingStep training;
  int names = 0;

  TunedModel(bool packed, std::int64_t accumulation, double max_norm) {
    const Value cb = slice(c, 10, 7);
    if (packed) {
      whole = graph.pack(std::array{a, d}, "ad");
      loss = add(term(whole, slice(c, 0, 10)), term(b, cb));
    } else {
      loss = add(add(term(a, slice(c, 0, 3)), term(d, slice(c, 3, 7))), term(b, cb));
    }
    training = add_training_step(loss, AdamWConfig{.max_grad_norm = max_norm}, {accumulation});
    for (const Value& gradient : training.gradients)  // to be read
      graph.keep(gradient, accumulation == 1 ? graph.info(gradient.id).name
                                             : fmt::format("gradient {}", names++));
  }

  Value term(Value w, Value factor) const { return sum_to(mul(silu(mul(w, x)), factor), {}); }

  void feed(Executor& executor, int step) const {
    std::vector<float> xs(columns), cs(17 * columns);
    for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = 0.3f * static_cast<float>(i) - 0.5f;
    for (std::size_t i = 0; i < cs.size(); ++i)
      cs[i] = static_cast<float>(i * 7 % 11) - 5.0f + 0.25f * static_cast<float>(step);
    executor.write(x, std::span<const float>(xs));
    executor.write(c, std::span<const float>(cs));
    executor.write(training.schedule, std::span<const float>(optimizer_schedule({}, 1e-2, step)));
  }
};

std::vector<float> values_of(Executor& executor, Value value) {
  std::vector<float> values(static_cast<std::size_t>(value.type().numel()));
  executor.read(value, std::span(values));
  return values;
}

// Some steps, as Session does them.
void train(TunedModel& m, Executor& executor, int steps) {
  for (int t = 1; t <= steps; ++t) {
    for (const Value& sum : m.training.accumulators) executor.fill_zero(sum);
    for (int micro = 0; micro < (m.training.accumulators.empty() ? 1 : 2); ++micro) {
      m.feed(executor, t + micro);
      executor.run(Phase::forward);
      executor.run(Phase::backward);
    }
    executor.run(Phase::optimizer);
  }
}

std::string checkpoint_of(TunedModel& m, Executor& executor) {
  const TemporaryDirectory directory;
  const auto path = directory.path / "checkpoint";
  write_checkpoint(path, {}, 3, m.graph, executor);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TrainingStep, PackedParametersTrainToTheSameBits) {
  for (const std::int64_t accumulation : {1, 2})
    for (const double max_norm : {0.0, 0.5}) {
      SCOPED_TRACE(fmt::format("{} batches, norm {}", accumulation, max_norm));
      TunedModel plain(false, accumulation, max_norm), packed(true, accumulation, max_norm);
      CpuDevice device(2);
      Executor one(plain.graph, device), other(packed.graph, device);
      one.initialize(5);
      other.initialize(5);
      EXPECT_EQ(checkpoint_of(plain, one), checkpoint_of(packed, other)) << "before any step";
      train(plain, one, 3);
      train(packed, other, 3);
      EXPECT_EQ(checkpoint_of(plain, one), checkpoint_of(packed, other));
      for (const Value& sum : packed.training.accumulators)
        EXPECT_EQ(values_of(other, sum),
                  values_of(one, plain.graph.find(packed.graph.info(sum.id).name)));
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(values_of(other, packed.training.gradients[i]),
                  values_of(one, plain.training.gradients[i]));
      if (max_norm > 0) {
        EXPECT_EQ(one.read_scalar(plain.training.grad_norm),
                  other.read_scalar(packed.training.grad_norm));
      }

      std::vector<float> both = values_of(other, packed.a);
      const std::vector<float> d = values_of(other, packed.d);
      both.insert(both.end(), d.begin(), d.end());
      EXPECT_EQ(values_of(other, packed.whole), both);
    }
}

// loss = sum(c w) over two parameters, so that their gradient is c.
struct SgdRun {
  std::vector<float> parameters, buffers;  // after three steps
};

SgdRun sgd_run(const SgdConfig& config, bool fused) {
  Graph graph;
  const Value c = graph.input("c", {DType::f32, {4}});
  const Value a = graph.parameter("a", {2}, Init::of({0.5f, -1.25f}));
  const Value b = graph.parameter("b", {2}, Init::of({2.0f, 0.0f}));
  const Value loss = add(sum_to(mul(a, slice(c, 0, 2)), {}), sum_to(mul(b, slice(c, 2, 2)), {}));
  const TrainingStep training = add_training_step(loss, config);
  if (fused) {
    EXPECT_EQ(fuse_optimizer(graph), 1u);
  }
  CpuDevice device(1);
  Executor executor(graph, device);
  executor.initialize(0);
  const float rate = 0.1f, unread = std::numeric_limits<float>::quiet_NaN();
  executor.write(training.schedule, std::span<const float>(std::array{rate, unread, unread}));
  for (int t = 1; t <= 3; ++t) {
    const std::array gradient{1.0f, -0.5f, 0.25f * static_cast<float>(t), -2.0f};
    executor.write(c, std::span<const float>(gradient));
    executor.run();
  }
  SgdRun done;
  for (const char* name : {"a", "b"}) {
    std::ranges::copy(values_of(executor, graph.find(name)), std::back_inserter(done.parameters));
    std::ranges::copy(values_of(executor, graph.find(fmt::format("{}.momentum_buffer", name))),
                      std::back_inserter(done.buffers));
  }
  return done;
}

// The numbers are those of torch.optim.SGD and clip_grad_norm_.
TEST(TrainingStep, SgdIsPyTorchs) {
  struct Case {
    SgdConfig config;
    std::vector<float> parameters, buffers;
  };
  const Case cases[] = {
      {{},
       {-0.0610000007f, -0.969500005f, 1.76225007f, 1.12199998f},
       {2.71000004f, -1.35500002f, 1.40250003f, -5.42000008f}},
      {{.weight_decay = 0.1},
       {-0.0840204731f, -0.902368784f, 1.65245557f, 1.11242008f},
       {2.80570483f, -1.67006242f, 1.924945f, -5.34420013f}},
      {{.weight_decay = 0.1, .nesterov = true, .max_grad_norm = 0.5},
       {0.291651845f, -1.06671989f, 1.76563501f, 0.337590307f},
       {0.693781614f, -0.611606956f, 0.82044065f, -1.1228472f}},
  };
  for (const auto& [config, parameters, buffers] : cases)
    for (const bool fused : {false, true}) {
      const SgdRun done = sgd_run(config, fused);
      EXPECT_THAT(done.parameters, ::testing::Pointwise(::testing::FloatNear(1e-6f), parameters));
      EXPECT_THAT(done.buffers, ::testing::Pointwise(::testing::FloatNear(1e-6f), buffers));
    }
}

// A scale far too high overflows the first gradients, which then must change nothing.
TEST(TrainingStep, SgdWithLossScalingSkipsWhatOverflows) {
  SgdConfig config{.loss_scaling = LossScaling{.initial = 0x1p127f, .backoff = 0x1p-120f}};
  const SgdRun scaled = sgd_run(config, true);
  // Two steps instead of three, of which the first had gradient c(2).
  EXPECT_THAT(scaled.buffers,
              ::testing::Pointwise(::testing::FloatNear(1e-6f), {1.9f, -0.95f, 1.2f, -3.8f}));
}

TEST(TrainingStep, NamesGradientsAndStateByParameter) {
  for (const std::int64_t accumulation : {1, 2}) {
    TunedModel m(true, accumulation, 0.0);
    EXPECT_THAT(m.graph.parameters(), ElementsAre(m.a, m.b, m.d));
    EXPECT_THAT(m.graph.trainables(), ElementsAre(m.b, m.whole));
    EXPECT_THAT(m.training.parameters, ElementsAre(m.a, m.b, m.d));
    ASSERT_EQ(m.training.gradients.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      const Value p = m.training.parameters[i];
      const std::string name = m.graph.info(p.id).name;
      EXPECT_EQ(m.training.gradients[i].type(), p.type());
      const Value named =
          accumulation == 1 ? m.training.gradients[i] : m.training.accumulators.at(i);
      EXPECT_EQ(m.graph.find(name + ".grad"), named);
      EXPECT_EQ(m.graph.info(named.id).role, Role::gradient);
      EXPECT_EQ(m.graph.find(name + ".exp_avg_sq").type(), p.type());
    }
    EXPECT_EQ(m.graph.find("ad.exp_avg").type(), m.whole.type());
    std::int64_t updates = 0;
    for (const Node& node : m.graph.nodes())
      updates += std::holds_alternative<AdamW>(node.op->variant());
    EXPECT_EQ(updates, 2);
  }
}

TEST(TrainingStep, PackedParametersAgreeWithTheReference) {
  TunedModel m(true, 1, 0.5);
  CpuDevice device(1);
  Executor executor(m.graph, device);
  executor.initialize(5);
  m.feed(executor, 1);
  ReferenceValues fed;
  for (ValueId id = 0; id < m.graph.value_count(); ++id)
    if (const ValueInfo& info = m.graph.info(id); info.persistent && info.parts.empty()) {
      const std::vector<float> values = values_of(executor, m.graph.value(id));
      fed[id].assign(values.begin(), values.end());
    }
  executor.run();
  const ReferenceValues expected = evaluate_reference(m.graph, fed);
  for (const Value& value : {m.a, m.d, m.whole, m.b, m.graph.find("d.exp_avg")}) {
    const std::vector<float> actual = values_of(executor, value);
    ASSERT_EQ(actual.size(), expected.at(value.id).size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      EXPECT_NEAR(actual[i], expected.at(value.id)[i], 1e-6) << m.graph.info(value.id).name;
  }
}

TEST(TrainingStep, RefusesALossThatReadsAPartByItself) {
  Graph graph;
  const Value a = graph.parameter("a", {2}, Init::ones()), b = graph.parameter("b", {3}, {});
  const Value whole = graph.pack(std::array{a, b}, "ab");
  const Value alone = sum_to(mul(a, a), {});
  const Value loss = sum_to(mul(whole, whole), {});
  try {
    add_training_step(add(loss, alone), {});
    FAIL() << "the gradient of a is incomplete";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a is read by a mul, though it is packed into ab"));
  }
  EXPECT_NO_THROW(add_training_step(loss, {}));  // which does not depend on `alone`
}

}  // namespace
}  // namespace ridge
