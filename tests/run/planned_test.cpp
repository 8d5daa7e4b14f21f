// A planned executor does what the other does: the same bits, the same memory at every moment.

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <tuple>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/run/executor.h"
#include "ridge/session/optimizer.h"
#include "tests/models/tiny_llama.h"
#include "tests/plan/random_graph.h"

namespace ridge {
namespace {

constexpr Execution planned{.planned = true};
constexpr Phase phases[] = {Phase::forward, Phase::backward, Phase::optimizer};

// Everything an observer hears, but for times and addresses; these it checks.
class Listener : public Observer {
 public:
  using Event = std::tuple<char, std::uint32_t, std::size_t, std::size_t, std::size_t, std::size_t>;

  void on_node_begin(const Graph&, NodeId n) override { events.push_back({'b', n, 0, 0, 0, 0}); }
  void on_node(const Graph&, NodeId n, Clock::time_point, Clock::time_point) override {
    events.push_back({'e', n, 0, 0, 0, 0});
  }
  void on_allocate(const Graph&, ValueId id, const void* address, std::size_t bytes,
                   const MemoryStats& memory) override {
    hear('a', id, bytes, memory);
    claim(address, bytes);
  }
  void on_release(const Graph&, ValueId id, const void* address, std::size_t bytes,
                  const MemoryStats& memory) override {
    hear('r', id, bytes, memory);
    EXPECT_EQ(used.erase(static_cast<const std::byte*>(address)), 1u);
  }
  void on_workspace(const Graph&, NodeId n, const void* address, std::size_t bytes,
                    const MemoryStats& memory) override {
    hear('w', n, bytes, memory);
    claim(address, bytes);
  }
  void on_workspace_release(const Graph&, NodeId n, const void* address, std::size_t bytes,
                            const MemoryStats& memory) override {
    hear('x', n, bytes, memory);
    EXPECT_EQ(used.erase(static_cast<const std::byte*>(address)), 1u);
  }
  void on_phase_begin(Phase phase) override {
    events.push_back({'p', static_cast<std::uint32_t>(phase), 0, 0, 0, 0});
  }

  std::vector<Event> events;
  std::map<const std::byte*, const std::byte*> used;  // begin and end of what is alive
  const std::byte* lowest = nullptr;
  const std::byte* highest = nullptr;

 private:
  void hear(char what, std::uint32_t owner, std::size_t bytes, const MemoryStats& memory) {
    events.push_back({what, owner, bytes, memory.live, memory.peak_live, memory.allocations});
  }
  void claim(const void* address, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(address);
    const auto next = used.lower_bound(begin);
    EXPECT_TRUE(next == used.end() || begin + bytes <= next->first) << "overlaps";
    EXPECT_TRUE(next == used.begin() || std::prev(next)->second <= begin) << "overlaps";
    used.emplace(begin, begin + bytes);
    lowest = lowest ? std::min(lowest, begin) : begin;
    highest = std::max(highest, begin + bytes);
  }
};

struct TrainedModel {
  Graph graph;
  Model model;
  TrainingStep training;

  explicit TrainedModel(DType dtype, std::int64_t accumulation = 1)
      : model(build_llama(graph, tiny_llama, 2, 13, dtype)),
        training(add_training_step(model.loss, AdamWConfig{.max_grad_norm = 1.0}, {accumulation})) {
  }

  void feed(Executor& executor, int step) const {
    std::vector<std::int32_t> tokens(26), targets(26);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(step)) % 20);
      targets[i] = static_cast<std::int32_t>(i * 5 % 20);
    }
    executor.write(model.input, std::span<const std::int32_t>(tokens));
    executor.write(model.targets, std::span<const std::int32_t>(targets));
    executor.write(training.schedule, std::span<const float>(optimizer_schedule({}, 1e-2, step)));
  }
};

std::vector<std::byte> bytes_of(Executor& executor, Value value) {
  std::vector<std::byte> bytes(value.type().bytes());
  executor.read(value, std::span(bytes));
  return bytes;
}

// Every value that can be read, by id.
std::map<ValueId, std::vector<std::byte>> readable(Executor& executor) {
  std::map<ValueId, std::vector<std::byte>> values;
  for (ValueId id = 0; id < executor.graph().value_count(); ++id)
    if (const ValueInfo& info = executor.graph().info(id); info.persistent || info.kept)
      values[id] = bytes_of(executor, executor.graph().value(id));
  return values;
}

// Two steps with an evaluation, which leaves a run unfinished, before, between and after them.
void train(TrainedModel& m, Executor& executor) {
  const int micro_steps = m.training.accumulators.empty() ? 1 : 2;
  for (int t = 1; t <= 2; ++t) {
    m.feed(executor, t + 5);
    executor.run(Phase::forward);
    executor.run(Phase::forward);
    for (const Value& sum : m.training.accumulators) executor.fill_zero(sum);
    for (int micro = 0; micro < micro_steps; ++micro) {
      m.feed(executor, t + micro);
      executor.run(Phase::forward);
      executor.run(Phase::backward);
    }
    executor.run(Phase::optimizer);
  }
}

TEST(PlannedExecution, ComputesTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t accumulation : {1, 2}) {
      TrainedModel m(dtype, accumulation);
      CpuDevice device(2);
      Executor one(m.graph, device), other(m.graph, device, planned),
          observed(m.graph, device, planned);
      Listener listener;
      observed.observe(listener);
      for (Executor* executor : {&one, &other, &observed}) {
        executor->initialize(4);
        train(m, *executor);
      }
      EXPECT_TRUE(readable(one) == readable(other));
      EXPECT_TRUE(readable(one) == readable(observed));
    }
}

TEST(PlannedExecution, TellsObserversTheSame) {
  TrainedModel m(DType::f32, 2);
  CpuDevice device(1);
  Executor one(m.graph, device), other(m.graph, device, planned);
  Listener first, second;
  one.observe(first);
  other.observe(second);
  for (Executor* executor : {&one, &other}) {
    executor->initialize(4);
    train(m, *executor);
  }
  EXPECT_GT(first.events.size(), 500u);
  EXPECT_TRUE(first.events == second.events);
  EXPECT_LE(static_cast<std::size_t>(second.highest - second.lowest), other.memory().reserved);
  EXPECT_EQ(other.memory().peak_live, other.peak_bytes());
  EXPECT_EQ(other.memory().peak_reserved, other.memory().reserved);
  EXPECT_GE(other.memory().peak_reserved, other.peak_bytes());
  EXPECT_LE(static_cast<double>(other.memory().peak_reserved),
            1.05 * static_cast<double>(other.peak_bytes()));
}

// Without observers memory is counted by the phase; whoever looks between phases sees no
// difference.
TEST(PlannedExecution, CountsMemoryTheSame) {
  TrainedModel m(DType::f32);
  CpuDevice device(1);
  Executor one(m.graph, device), other(m.graph, device, planned);
  const auto check = [&] {
    EXPECT_EQ(one.memory().live, other.memory().live);
    EXPECT_EQ(one.memory().peak_live, other.memory().peak_live);
    EXPECT_EQ(one.memory().allocations, other.memory().allocations);
  };
  check();
  for (Executor* executor : {&one, &other}) {
    executor->initialize(4);
    m.feed(*executor, 1);
  }
  for (const Phase phase : {Phase::forward, Phase::forward, Phase::backward, Phase::optimizer,
                            Phase::forward, Phase::backward}) {
    SCOPED_TRACE(name_of(phase));
    one.run(phase);
    other.run(phase);
    check();
    one.reset_peak_memory();
    other.reset_peak_memory();
  }
  // An observer that joins late hears of the same values.
  Listener first, second;
  one.observe(first);
  other.observe(second);
  EXPECT_TRUE(first.events == second.events);
}

TEST(PlannedExecution, ReadsOnlyWhatARunHasComputed) {
  TrainedModel m(DType::f32);
  CpuDevice device(1);
  Executor executor(m.graph, device, planned);
  executor.initialize(4);
  m.feed(executor, 1);
  EXPECT_THROW(executor.read_scalar(m.model.loss), UsageError);
  executor.run();
  const float loss = executor.read_scalar(m.model.loss);
  EXPECT_GT(executor.read_scalar(m.training.grad_norm), 0.0f);
  executor.run(Phase::forward);
  EXPECT_NE(executor.read_scalar(m.model.loss), loss);  // the parameters have changed
  EXPECT_THROW(executor.read_scalar(m.training.grad_norm), UsageError);
}

TEST(PlannedExecution, AgreesOnRandomGraphs) {
  CpuDevice device(2);
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Graph graph;
    const testing::RandomGraph random(graph, seed, 20 + static_cast<int>(seed) % 80);
    Executor one(graph, device), other(graph, device, planned);
    for (Executor* executor : {&one, &other}) {
      executor->initialize(seed);
      for (ValueId id = 0; id < graph.value_count(); ++id)
        if (graph.info(id).role == Role::input) {
          std::vector<float> ramp(static_cast<std::size_t>(graph.info(id).type.numel()));
          std::iota(ramp.begin(), ramp.end(), -3.0f);
          executor->write(graph.value(id), std::span<const float>(ramp));
        }
      executor->run(Phase::forward);
      executor->run();
      for (const Phase phase : phases) executor->run(phase);
    }
    ASSERT_TRUE(readable(one) == readable(other));
    EXPECT_EQ(other.memory().peak_live, other.peak_bytes());
  }
}

TEST(PlannedExecution, SaysBeforehandThatAModelDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {std::int64_t{1} << 40}});
  graph.keep(scale(x, 2.0f), "y");
  CpuDevice device(1);
  EXPECT_THROW(Executor(graph, device, planned), OutOfMemoryError);
}

TEST(PlannedExecution, RefusesPhasesOutOfOrder) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4}});
  {
    const PhaseScope phase(graph, Phase::backward);
    scale(x, 2.0f);
  }
  scale(x, 3.0f);
  CpuDevice device(1);
  EXPECT_NO_THROW(Executor(graph, device));
  EXPECT_THROW(Executor(graph, device, planned), UsageError);
}

}  // namespace
}  // namespace ridge
