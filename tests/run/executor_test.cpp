#include "ridge/run/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/exercise/devices.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/op.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/unary.h"
#include "ridge/run/reference.h"
#include "ridge/session/optimizer.h"
#include "tests/models/tiny_llama.h"

namespace ridge {
namespace {

// Follows every allocation and release and knows at any time what is alive.
class MemoryObserver : public Observer {
 public:
  void on_allocate(const Graph&, ValueId id, const void*, std::size_t bytes,
                   const MemoryStats& memory) override {
    EXPECT_TRUE(alive.emplace(id, bytes).second) << "value " << id << " was allocated twice";
    peak = std::max(peak, memory.live);
  }
  void on_release(const Graph&, ValueId id, const void*, std::size_t, const MemoryStats&) override {
    EXPECT_EQ(alive.erase(id), 1u) << "value " << id << " was released but not alive";
  }
  void on_workspace(const Graph&, NodeId, const void*, std::size_t,
                    const MemoryStats& memory) override {
    peak = std::max(peak, memory.live);
  }
  void on_node(const Graph&, NodeId node, Clock::time_point begin, Clock::time_point end) override {
    EXPECT_LE(begin, end);
    nodes.push_back(node);
  }
  void on_phase(Phase phase, Clock::time_point, Clock::time_point) override {
    phases.push_back(phase);
  }

  std::map<ValueId, std::size_t> alive;
  std::size_t peak = 0;
  std::vector<NodeId> nodes;
  std::vector<Phase> phases;
};

struct SmallModel {
  Graph graph;
  Model model;
  TrainingStep training;

  explicit SmallModel(std::int64_t accumulation = 1)
      : model(build_llama(graph, tiny_llama, 2, 12)),
        training(add_training_step(model.loss, AdamWConfig{.max_grad_norm = 1.0}, {accumulation})) {
  }

  void feed(Executor& executor) const {
    std::vector<std::int32_t> tokens(24), targets(24);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(i * 7 % 20);
      targets[i] = static_cast<std::int32_t>(i * 5 % 20);
    }
    executor.write(model.input, std::span<const std::int32_t>(tokens));
    executor.write(model.targets, std::span<const std::int32_t>(targets));
    executor.write(training.schedule, std::span<const float>(optimizer_schedule({}, 1e-3, 1)));
  }
};

TEST(Executor, ComputesWhatTheReferenceComputes) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {3, 4}});
  const Value w = graph.parameter("w", {5, 4}, Init::normal(0.5f));
  const Value y = silu(scale(project(x, w), 2.0f));
  graph.keep(y, "y");
  CpuDevice device(2);
  Executor executor(graph, device);
  executor.initialize(7);
  std::vector<float> xs(12), ws(20), ys(15);
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = 0.1f * static_cast<float>(i) - 0.5f;
  executor.write(x, std::span<const float>(xs));
  executor.run();
  executor.read(w, std::span(ws));
  executor.read(y, std::span(ys));
  const auto reference =
      evaluate_reference(graph, {{x.id, {xs.begin(), xs.end()}}, {w.id, {ws.begin(), ws.end()}}});
  for (std::size_t i = 0; i < ys.size(); ++i) EXPECT_NEAR(ys[i], reference.at(y.id)[i], 1e-5);
}

// Whether the whole or a part is copied, and whether the whole or a part is written.
TEST(Executor, WritesCopiesWithWhatTheyRepeat) {
  Graph graph;
  const Value a = graph.parameter("a", {2, 3}, Init::ones());
  const Value b = graph.parameter("b", {1, 3}, Init::normal(1.0f));
  const Value both = graph.pack(std::array{a, b}, "ab");
  const Value of_both = graph.rounded_copy(both, DType::bf16, "ab.bf16");
  const Value of_b = graph.rounded_copy(b, DType::f16, "b.f16");
  CpuDevice device(1);
  Executor executor(graph, device);
  const auto expect_rounded = [&] {
    for (const auto& [copy, original] : {std::pair{of_both, both}, std::pair{of_b, b}}) {
      std::vector<float> wanted = executor.read_floats(original);
      for (float& x : wanted)
        x = copy == of_b ? static_cast<float>(Float16(x)) : static_cast<float>(BFloat16(x));
      EXPECT_EQ(executor.read_floats(copy), wanted);
    }
  };
  executor.initialize(1);
  expect_rounded();
  executor.write(b, std::span<const float>(std::vector{0.1f, 0.2f, 0.3f}));
  expect_rounded();
  EXPECT_EQ(executor.read_floats(of_both)[0], 1.0f);
  executor.write(a, std::span<const float>(std::vector<float>(6, 1.7f)));
  expect_rounded();
  executor.write(both, std::span<const float>(std::vector<float>(9, -3.3f)));
  expect_rounded();
}

// Whether all of it is written or a part.
TEST(Executor, GivesAndTakesInF32WhatItStoresInHalves) {
  Graph graph;
  const Value a = graph.parameter("a", {2, 3}, Init::normal(1.0f));
  const Value b = graph.parameter("b", {1, 3}, Init::normal(1.0f));
  const Value both = graph.pack(std::array{a, b}, "ab");
  const Value upper = graph.rounded_copy(both, DType::bf16, "ab.bf16");
  CpuDevice device(1);
  std::vector<float> wanted;
  {
    Executor executor(graph, device);
    executor.initialize(3);
    wanted = executor.read_floats(both);
  }
  ASSERT_EQ(graph.split(both, upper), both);
  Executor executor(graph, device);
  EXPECT_EQ(executor.peak_bytes(), 64u);
  executor.initialize(3);
  const auto expect_all = [&] {
    EXPECT_EQ(executor.read_floats(both), wanted);
    EXPECT_EQ(executor.read_floats(a), std::vector(wanted.begin(), wanted.begin() + 6));
    EXPECT_EQ(executor.read_floats(b), std::vector(wanted.begin() + 6, wanted.end()));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_EQ(executor.read_floats(upper)[i], static_cast<float>(BFloat16(wanted[i])));
  };
  expect_all();
  const std::vector<float> three{0.1f, -1e30f, 3.3f};
  executor.write(b, std::span<const float>(three));
  std::ranges::copy(three, wanted.begin() + 6);
  expect_all();
  wanted.assign(9, 1.7f);
  executor.write(both, std::span<const float>(wanted));
  expect_all();
  executor.fill_zero(a);
  std::fill_n(wanted.begin(), 6, 0.0f);
  expect_all();
}

TEST(Executor, ReleasesEveryTransientAndPredictsItsPeak) {
  for (const std::int64_t accumulation : {1, 2}) {
    SmallModel m(accumulation);
    CpuDevice device(2);
    Executor executor(m.graph, device);
    executor.initialize(1);
    m.feed(executor);
    MemoryObserver observer;
    executor.observe(observer);
    for (int step = 0; step < 2; ++step) {
      executor.run();
      for (const auto& [id, bytes] : observer.alive)
        EXPECT_TRUE(m.graph.info(id).kept || m.graph.info(id).persistent)
            << m.graph.info(id).name << " outlives the step";
    }
    EXPECT_EQ(observer.peak, executor.peak_bytes());
    EXPECT_EQ(executor.memory().peak_live, executor.peak_bytes());
  }
}

TEST(Executor, TellsObserversOfEveryNodeInOrder) {
  SmallModel m;
  CpuDevice device(1);
  Executor executor(m.graph, device);
  executor.initialize(1);
  m.feed(executor);
  MemoryObserver observer;
  executor.observe(observer);
  executor.run();
  EXPECT_TRUE(std::is_sorted(observer.nodes.begin(), observer.nodes.end()));
  std::size_t with_kernel = 0;
  for (const Node& node : m.graph.nodes()) with_kernel += !only_renames(*node.op);
  EXPECT_EQ(observer.nodes.size(), with_kernel);
  EXPECT_EQ(observer.phases, (std::vector{Phase::forward, Phase::backward, Phase::optimizer}));
}

// A forward run alone (an evaluation) leaves activations that the backward pass would have used;
// the next forward run must not trip over them.
TEST(Executor, StartsAfreshAfterAForwardRunAlone) {
  SmallModel m;
  CpuDevice device(2);
  Executor executor(m.graph, device);
  executor.initialize(1);
  m.feed(executor);
  executor.run(Phase::forward);
  const float first = executor.read_scalar(m.model.loss);
  const std::size_t live = executor.memory().live;
  for (int i = 0; i < 3; ++i) executor.run(Phase::forward);
  EXPECT_EQ(executor.read_scalar(m.model.loss), first);
  EXPECT_EQ(executor.memory().live, live);
}

TEST(Executor, InitializesEachValueFromItsNameAlone) {
  auto weight_beside = [](bool other) {
    Graph graph;
    if (other) graph.parameter("other", {3, 3}, Init::normal(1.0f));
    const Value w = graph.parameter("w", {4, 4}, Init::normal(1.0f));
    CpuDevice device(1);
    Executor executor(graph, device);
    executor.initialize(3);
    std::vector<float> values(16);
    executor.read(w, std::span(values));
    return values;
  };
  EXPECT_EQ(weight_beside(false), weight_beside(true));
}

// Counts what is uploaded.
class CountingDevice final : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  void upload(void* device, const void* host, std::size_t bytes) override {
    ++uploads;
    uploaded += bytes;
    WrappedDevice::upload(device, host, bytes);
  }
  std::size_t uploads = 0, uploaded = 0;
};

TEST(Executor, FeedsInputsInOneTransfer) {
  for (const bool planned : {false, true}) {
    Graph graph;
    const Value a = graph.input("a", {DType::f32, {3}});
    const Value w = graph.parameter("w", {5}, Init::ones());
    const Value b = graph.input("b", {DType::i32, {17}}), c = graph.input("c", {DType::f32, {1}});
    graph.keep(scale(w, 2.0f), "y");
    CpuDevice cpu(1);
    CountingDevice device(cpu);
    Executor executor(graph, device, {.planned = planned});
    const auto feed = [&](const std::vector<Value>& values, std::uint8_t base) {
      std::vector<std::vector<std::byte>> data;
      std::vector<Executor::Feed> feeds;
      for (const Value& value : values)
        data.emplace_back(value.type().bytes(), std::byte(base + value.id));
      for (std::size_t i = 0; i < values.size(); ++i) feeds.push_back({values[i], data[i]});
      device.uploads = device.uploaded = 0;
      executor.write(feeds);
    };
    const auto first_byte = [&](Value value) {
      std::vector<std::byte> data(value.type().bytes());
      executor.read(value, std::span(data));
      EXPECT_EQ(std::ranges::count(data, data[0]), std::ssize(data)) << "of one kind";
      return std::to_integer<unsigned>(data[0]);
    };
    feed({c, a, b}, 10);
    EXPECT_EQ(device.uploads, 1u);
    EXPECT_EQ(device.uploaded, 64u + 128 + 4);
    feed({a, c}, 20);
    EXPECT_EQ(device.uploads, 2u) << "b lies between them";
    EXPECT_EQ(first_byte(a), 20 + a.id);
    EXPECT_EQ(first_byte(b), 10 + b.id);
    EXPECT_EQ(first_byte(c), 20 + c.id);
    feed({w, a}, 30);
    EXPECT_EQ(first_byte(w), 30 + w.id);
    EXPECT_EQ(first_byte(b), 10 + b.id);
    EXPECT_THROW(executor.write(std::vector<Executor::Feed>{{a, {}}}), UsageError);
  }
}

TEST(Executor, RefusesDataOfTheWrongSize) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4}});
  CpuDevice device(1);
  Executor executor(graph, device);
  std::vector<float> three(3);
  EXPECT_THROW(executor.write(x, std::span<const float>(three)), UsageError);
  EXPECT_THROW(executor.read(x, std::span(three)), UsageError);
}

TEST(Executor, SaysBeforehandThatAModelDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {std::int64_t{1} << 40}});
  graph.keep(scale(x, 2.0f), "y");
  CpuDevice device(1);
  try {
    const Executor executor(graph, device);
    FAIL() << "8 TiB were accepted";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("8.00 TiB"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ridge
