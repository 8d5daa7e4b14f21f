#include "ridge/passes/freeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/run/executor.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::IsEmpty;

const TensorType four{DType::f32, {4}};

std::vector<std::string> operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(name_of(*node.op));
  return names;
}

// Names of what takes memory from run to run, inputs among them.
std::vector<std::string> persistent(const Graph& graph) {
  std::vector<std::string> names;
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (graph.info(id).persistent) names.push_back(graph.info(id).name);
  return names;
}

// y = x * silu(2 a) + a * b + b, where x is fed.
struct FrozenModel {
  Graph graph;
  Value x, a, b, y;

  FrozenModel() {
    x = graph.input("x", four);
    a = graph.parameter("a", {4}, Init::of({1, 2, 3, 4}));
    b = graph.parameter("b", {4}, Init::of({4, 3, 2, 1}));
    const Value gate = silu(scale(a, 2.0f));
    y = add(add(mul(x, gate), mul(a, b)), b);
    graph.keep(y, "y");
  }

  std::vector<float> run(const Frozen* frozen = nullptr) {
    CpuDevice device(1);
    Executor executor(graph, device);
    executor.initialize(0);
    if (frozen) {
      Executor setup(*frozen->setup, device);
      setup.initialize(0);
      setup.run(Phase::forward);
      for (const ValueId id : frozen->values) {
        std::vector<std::byte> bytes(graph.info(id).type.bytes());
        setup.read(frozen->setup->value(id), std::span(bytes));
        executor.write(graph.value(id), std::span<const std::byte>(bytes));
      }
    }
    const std::vector<float> fed{1, -1, 0.5f, 2};
    executor.write(x, std::span<const float>(fed));
    executor.run(Phase::forward);
    return executor.read_floats(y);
  }
};

TEST(Freeze, TakesOutWhatDependsOnWeightsAlone) {
  FrozenModel model;
  const Frozen frozen = freeze(model.graph);
  EXPECT_THAT(operators(*frozen.setup), ElementsAre("scale", "silu", "mul"));
  EXPECT_THAT(operators(model.graph), ElementsAre("mul", "add", "add"));
  EXPECT_EQ(frozen.values.size(), 2u);
  EXPECT_THAT(persistent(*frozen.setup), ElementsAre("a", "b"));
  // The run itself still adds b.
  EXPECT_THAT(persistent(model.graph), ElementsAre("x", "b", "frozen.4", "frozen.5"));
  EXPECT_EQ(model.graph.parameters().size(), 2u) << "they stay what the network has";
}

TEST(Freeze, LeavesWhatIsComputedTheSame) {
  FrozenModel whole, model;
  const Frozen frozen = freeze(model.graph);
  EXPECT_THAT(model.run(&frozen), ::testing::Pointwise(FloatEq(), whole.run()));
}

TEST(Freeze, LeavesFreeNodesWhereTheirResultIsRead) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {2, 2}});
  const Value a = graph.parameter("a", {4}, Init::ones());
  const Value half = graph.parameter("b", {4, 2}, Init::ones());
  const Value y = add(mul(x, reshape(a, {2, 2})), reshape(scale(slice(half, 0, 2), 2.0f), {2, 2}));
  graph.keep(y, "y");
  const Frozen frozen = freeze(graph);
  EXPECT_THAT(operators(*frozen.setup), ElementsAre("slice", "scale"));
  EXPECT_THAT(operators(graph), ElementsAre("reshape", "mul", "add"));
  EXPECT_THAT(persistent(graph), ElementsAre("x", "a", "frozen.4"));
}

TEST(Freeze, TakesConversionsOfInputsOutWhereThatIsAskedFor) {
  const auto build = [](Graph& graph) {
    const Value x = graph.input("x", {DType::f32, {2, 3, 4, 4}});
    const Value labels = graph.input("labels", four);
    const Value images = permute(cast(x, DType::bf16), {0, 2, 3, 1});
    // Another order, and a conversion of what is computed, are work of the network.
    const Value patches = permute(images, {0, 1, 3, 2});
    graph.keep(cast(relu(patches), DType::f32), "y");
    EXPECT_NE(labels.id, no_value);
  };
  Graph graph, unasked;
  build(graph);
  const Frozen frozen = freeze(graph, FrozenInputs::conversions);
  EXPECT_THAT(operators(*frozen.setup), ElementsAre("cast", "permute"));
  EXPECT_THAT(operators(graph), ElementsAre("permute", "relu", "cast"));
  EXPECT_THAT(persistent(*frozen.setup), ElementsAre("x"));
  EXPECT_THAT(persistent(graph), ElementsAre("labels", "frozen.3")) << "x is fed to the setup";
  EXPECT_EQ(graph.info(frozen.values[0]).role, Role::input);
  build(unasked);
  EXPECT_THAT(freeze(unasked).values, IsEmpty());
  EXPECT_THAT(persistent(unasked), ElementsAre("x", "labels"));
}

TEST(Freeze, FindsNothingWhereWeightsAreUpdated) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {2, 3, 4, 4}});
  const auto state = [&](const char* name, Init init) {
    return graph.state(name, {DType::f32, {3}}, Role::buffer, init);
  };
  const Value mean = state("mean", Init::zeros()), variance = state("variance", Init::ones());
  const Value y = batch_norm_train(x, state("weight", Init::ones()), state("bias", Init::zeros()),
                                   mean, variance);
  graph.keep(y, "y");
  graph.keep(scale(mean, 2.0f), "twice");
  const std::vector<std::string> before = operators(graph);
  const Frozen frozen = freeze(graph);
  EXPECT_THAT(frozen.values, IsEmpty());
  EXPECT_THAT(operators(*frozen.setup), IsEmpty());
  EXPECT_EQ(operators(graph), before);
}

TEST(Freeze, MakesBuffersOfResultsThatAreReadAfterTheRun) {
  Graph graph;
  const Value a = graph.parameter("a", {4}, Init::ones());
  const Value y = scale(a, 2.0f);
  graph.keep(y, "y");
  const Frozen frozen = freeze(graph);
  EXPECT_THAT(frozen.values, ElementsAre(y.id));
  EXPECT_THAT(persistent(graph), ElementsAre("y"));
  EXPECT_EQ(frozen.setup->find("y").id, y.id);
}

TEST(Freeze, KeepsTheOriginalOfARoundedCopy) {
  Graph graph;
  const Value x = graph.input("x", {DType::bf16, {4}});
  const Value a = graph.parameter("a", {4}, Init::ones());
  graph.keep(mul(x, graph.rounded_copy(a, DType::bf16, "a.bf16")), "y");
  freeze(graph);
  EXPECT_THAT(persistent(graph), ElementsAre("x", "a", "a.bf16"));
}

}  // namespace
}  // namespace ridge
