#include "ridge/passes/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/batch_norm.h"
#include "ridge/passes/autodiff.h"
#include "ridge/run/executor.h"
#include "ridge/run/reference.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Substitutes = Rewriter::Substitutes;

const TensorType four{DType::f32, {4}};

std::vector<std::string> operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(name_of(*node.op));
  return names;
}

// What the graph computes as v for x = 1, 2, 3, 4.
std::vector<double> computed(Graph& graph, Value x, Value v) {
  return evaluate_reference(graph, {{x.id, {1, 2, 3, 4}}}).at(v.id);
}

// Every value's producer is the node that has it as an output.
void expect_consistent(const Graph& graph) {
  std::vector<NodeId> producers(graph.value_count(), no_node);
  for (NodeId n = 0; n < graph.nodes().size(); ++n)
    for (std::uint32_t i = 0; i < graph.nodes()[n].outputs.size(); ++i) {
      const ValueId out = graph.nodes()[n].outputs[i];
      EXPECT_EQ(producers[out], no_node) << "value " << out << " is computed twice";
      producers[out] = n;
      EXPECT_EQ(graph.info(out).output, i);
    }
  for (ValueId v = 0; v < graph.value_count(); ++v) EXPECT_EQ(graph.info(v).producer, producers[v]);
}

TEST(Rewriter, LeavesAGraphThatNothingIsSaidAboutAsItWas) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value y = silu(scale(x, 2.0f));
  graph.keep(y, "y");
  const std::vector<double> before = computed(graph, x, y);
  Rewriter rw(graph);
  EXPECT_EQ(rw.commit(), 0u);
  EXPECT_THAT(operators(graph), ElementsAre("scale", "silu"));
  EXPECT_EQ(computed(graph, x, graph.find("y")), before);
  expect_consistent(graph);
}

TEST(Rewriter, KnowsProducersAndUses) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 2.0f);  // 0
  const Value b = mul(a, a);       // 1
  const Value c = add(a, b);       // 2
  const Value d = silu(c);         // 3
  graph.keep(d, "d");
  const Value e = silu(d), f = silu(e);  // 4, 5
  graph.set_role(e, Role::gradient, "e.grad");
  Rewriter rw(graph);
  EXPECT_EQ(rw.producer(x.id), no_node);
  EXPECT_EQ(rw.producer(c.id), 2u);
  EXPECT_EQ(rw.producer<Add>(c.id), 2u);
  EXPECT_EQ(rw.producer<Mul>(c.id), no_node);
  EXPECT_THAT(rw.uses(a.id), ElementsAre(1u, 2u)) << "each node once";
  EXPECT_EQ(rw.only_use<Mul>(a.id), no_node) << "there are two";
  EXPECT_EQ(rw.only_use<Add>(b.id), 2u);
  EXPECT_EQ(rw.only_use<Silu>(b.id), no_node) << "it is no silu";
  EXPECT_EQ(rw.op<Add>(no_node), nullptr);
  EXPECT_TRUE(rw.is_readable(d.id) && rw.is_readable(x.id) && rw.is_readable(e.id));
  EXPECT_FALSE(rw.is_readable(c.id) || rw.is_readable(f.id));
  EXPECT_EQ(rw.only_use<Silu>(d.id), no_node) << "whoever reads d after the run uses it too";
  EXPECT_EQ(rw.only_use<Silu>(e.id), no_node);
  rw.remove(2);
  EXPECT_EQ(rw.op<Add>(2), nullptr) << "it is claimed";
  EXPECT_EQ(rw.producer<Add>(c.id), no_node);
  EXPECT_EQ(rw.only_use<Add>(b.id), no_node);
}

// Whoever holds a kept or named value goes on holding it.
TEST(Rewriter, KeepsTheIdsOfWhatIsComputedOtherwise) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 2.0f), b = scale(a, 3.0f), c = silu(b);
  graph.keep(b, "six_x");
  graph.set_role(c, Role::gradient, "c.grad");
  Rewriter rw(graph);
  const NodeId first = rw.producer(a.id), second = rw.producer(b.id);
  rw.replace({first, second}, second, [&] {
    return Substitutes{{b.id, scale(rw.value(x.id), 6.0f)}};
  });
  EXPECT_EQ(rw.op<Scale>(first), nullptr);
  EXPECT_EQ(rw.commit(), 1u);
  EXPECT_THAT(operators(graph), ElementsAre("scale", "silu"));
  EXPECT_EQ(graph.find("six_x"), b);
  EXPECT_EQ(graph.find("c.grad"), c);
  EXPECT_TRUE(graph.info(b.id).kept);
  EXPECT_EQ(graph.info(c.id).role, Role::gradient);
  EXPECT_EQ(graph.info(a.id).producer, no_node);
  EXPECT_THAT(computed(graph, x, b), ElementsAre(6, 12, 18, 24));
  expect_consistent(graph);
}

TEST(Rewriter, TurnsUsesToAValueThatIsThereAlready) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 2.0f), b = scale(x, 2.0f), c = mul(a, b);
  graph.keep(c, "c");
  Rewriter rw(graph);
  const NodeId second = rw.producer(b.id);
  rw.replace({second}, second, [&] { return Substitutes{{b.id, rw.value(a.id)}}; });
  EXPECT_EQ(rw.commit(), 1u);
  EXPECT_THAT(operators(graph), ElementsAre("scale", "mul"));
  EXPECT_THAT(graph.nodes()[1].inputs, ElementsAre(a.id, a.id));
  EXPECT_THAT(computed(graph, x, c), ElementsAre(4, 16, 36, 64));
}

// A later replacement builds on what an earlier one made, whether under the same id or another.
TEST(Rewriter, LetsReplacementsBuildOnEachOther) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 2.0f), b = scale(x, 2.0f), c = silu(b), d = silu(c);
  graph.keep(d, "d");
  Rewriter rw(graph);
  const NodeId nb = rw.producer(b.id), nc = rw.producer(c.id), nd = rw.producer(d.id);
  rw.replace({nb}, nb, [&] { return Substitutes{{b.id, rw.value(a.id)}}; });
  rw.replace({nc}, nc, [&] { return Substitutes{{c.id, scale(rw.value(b.id), 5.0f)}}; });
  // Two at one place, in the order in which they were said.
  Value extra;
  rw.replace({}, nd, [&] {
    extra = scale(rw.value(c.id), 7.0f);
    return Substitutes{};
  });
  rw.replace({nd}, nd, [&] { return Substitutes{{d.id, add(extra, rw.value(c.id))}}; });
  EXPECT_EQ(rw.commit(), 4u);
  EXPECT_THAT(operators(graph), ElementsAre("scale", "scale", "scale", "add"));
  EXPECT_THAT(computed(graph, x, d), ElementsAre(80, 160, 240, 320));
  expect_consistent(graph);
}

// Of several values that one replacement computes from each other, each takes over an id.
TEST(Rewriter, ReplacesAChain) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 2.0f), b = scale(a, 3.0f);
  graph.keep(a, "a");
  graph.keep(b, "b");
  Rewriter rw(graph);
  rw.replace({0, 1}, 1, [&] {
    const Value twice = add(rw.value(x.id), rw.value(x.id));
    return Substitutes{{b.id, add(add(twice, twice), twice)}, {a.id, twice}};
  });
  rw.commit();
  EXPECT_THAT(graph.nodes()[1].inputs, ElementsAre(a.id, a.id));
  EXPECT_THAT(computed(graph, x, a), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(computed(graph, x, b), ElementsAre(6, 12, 18, 24));
  expect_consistent(graph);
}

TEST(Rewriter, BuildsUnderTheScopeAndPhaseOfItsPlace) {
  Graph graph;
  const Value x = graph.input("x", four);
  Value y;
  {
    const Scope scope(graph, "layers.0");
    const PhaseScope phase(graph, Phase::backward);
    y = scale(x, 2.0f);
  }
  graph.keep(y, "y");
  Rewriter rw(graph);
  rw.replace({0}, 0, [&] {
    const Scope inner(graph, "inner");
    return Substitutes{{y.id, add(x, x)}};
  });
  rw.commit();
  EXPECT_EQ(graph.scope_name(graph.nodes()[0].scope), "layers.0.inner");
  EXPECT_EQ(graph.nodes()[0].phase, Phase::backward);
  EXPECT_EQ(graph.current_scope(), ScopeId{0});
}

// A gradient node names the forward node that it differentiates, wherever that has gone.
TEST(Rewriter, FollowsForwardNodes) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {1}});
  const Value w = graph.parameter("w", {1}, Init::ones());
  scale(x, 9.0f);                  // 0: will be removed
  const Value a = mul(x, w);       // 1
  const Value b = silu(a);         // 2
  const Value c = scale(b, 2.0f);  // 3
  graph.keep(c, "c");
  gradients(c, std::array{w});
  const auto forward_of = [&](std::string_view op) {
    for (const Node& node : graph.nodes())
      if (node.phase == Phase::backward && name_of(*node.op) == op && node.forward != no_node)
        return std::string(name_of(*graph.nodes()[node.forward].op));
    return std::string("none");
  };
  ASSERT_EQ(forward_of("silu_grad"), "silu");
  ASSERT_EQ(forward_of("scale"), "scale");
  Rewriter rw(graph);
  rw.remove(0);
  // The scaling becomes two nodes, of which the last stands for it; the silu stays.
  rw.replace({3}, 3, [&] { return Substitutes{{c.id, add(rw.value(b.id), rw.value(b.id))}}; });
  rw.commit();
  EXPECT_EQ(forward_of("silu_grad"), "silu");
  EXPECT_EQ(forward_of("scale"), "add");
  EXPECT_EQ(forward_of("mul"), "mul");
  expect_consistent(graph);
}

TEST(Rewriter, ForgetsForwardNodesThatAreGone) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 1.0f);
  {
    const PhaseScope phase(graph, Phase::backward, graph.info(a.id).producer);
    graph.keep(silu(x), "y");
  }
  Rewriter rw(graph);
  rw.remove(0);
  EXPECT_EQ(rw.commit(), 0u);
  EXPECT_EQ(graph.nodes()[0].forward, no_node);
}

TEST(Rewriter, RepeatsNodesForWhatComesAfter) {
  Graph graph;
  const Value x = graph.input("x", four);
  Value a, b, early, late;
  {
    const Scope scope(graph, "unit");
    a = scale(x, 2.0f);  // 0
    b = silu(a);         // 1
  }
  early = scale(b, 3.0f);  // 2
  graph.keep(early, "early");
  {
    const Scope scope(graph, "elsewhere");
    const PhaseScope phase(graph, Phase::backward);
    late = mul(b, a);  // 3
  }
  graph.keep(late, "late");
  const std::vector<double> before = computed(graph, x, late);
  Rewriter rw(graph);
  rw.repeat(0, 3);
  rw.repeat(1, 3);
  EXPECT_EQ(rw.commit(), 2u);
  EXPECT_THAT(operators(graph), ElementsAre("scale", "silu", "scale", "scale", "silu", "mul"));
  const std::vector<Node>& nodes = graph.nodes();
  EXPECT_EQ(nodes[2].inputs, std::vector{b.id}) << "what came before reads the first";
  EXPECT_EQ(nodes[5].inputs, (std::vector{nodes[4].outputs[0], nodes[3].outputs[0]}));
  EXPECT_EQ(nodes[4].inputs, nodes[3].outputs);
  for (const NodeId n : {3u, 4u}) {
    EXPECT_EQ(nodes[n].phase, Phase::backward);
    EXPECT_EQ(graph.scope_name(nodes[n].scope), "unit");
    EXPECT_EQ(nodes[n].forward, n - 3) << "it belongs to what it repeats";
  }
  EXPECT_EQ(computed(graph, x, late), before);
  expect_consistent(graph);
}

// The running statistics have been moved once: a repetition reads the batch alone.
TEST(Rewriter, RepeatsANormWithoutMovingItsStatisticsAgain) {
  std::vector<std::vector<float>> results[2];
  for (const bool repeats : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", {DType::f32, {2, 1, 1, 2}});
    const auto of_channel = [&](const char* name, float value) {
      return graph.parameter(name, {1}, Init::constant(value));
    };
    const Value mean = of_channel("mean", 0.5f), variance = of_channel("variance", 2.0f);
    const Value y =
        batch_norm_train(x, of_channel("weight", 1.5f), of_channel("bias", 0.25f), mean, variance);
    Value late;
    {
      const PhaseScope phase(graph, Phase::backward);
      late = scale(y, 3.0f);  // 1
    }
    graph.keep(late, "late");
    if (repeats) {
      Rewriter rw(graph);
      rw.repeat(0, 1);
      EXPECT_EQ(rw.commit(), 1u);
      EXPECT_THAT(operators(graph), ElementsAre("batch_norm_train", "batch_norm_train", "scale"));
    }
    CpuDevice device(1);
    Executor executor(graph, device);
    executor.initialize(1);
    const std::vector<float> xs{1, 2, 3, 6};
    executor.write(x, std::span(xs));
    executor.run();
    for (const Value v : {late, mean, variance})
      results[repeats].push_back(executor.read_floats(v));
  }
  EXPECT_EQ(results[true], results[false]);
  EXPECT_NE(results[false][1], std::vector{0.5f}) << "the statistics move";
}

TEST(Rewriter, RefusesToLeaveAValueUncomputed) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 2.0f);
  graph.keep(silu(a), "y");
  Rewriter rw(graph);
  rw.remove(0);
  try {
    rw.commit();
    FAIL() << "nothing computes what silu uses";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a pass left silu before the value"));
  }
}

TEST(Rewriter, RefusesAUseBeforeTheValueIsComputed) {
  Graph graph;
  const Value x = graph.input("x", four);
  const Value a = scale(x, 2.0f);   // 0
  graph.keep(silu(a), "y");         // 1
  graph.keep(scale(x, 3.0f), "z");  // 2
  Rewriter rw(graph);
  rw.replace({0}, 2, [&] { return Substitutes{{a.id, add(x, x)}}; });  // too late for node 1
  EXPECT_THROW(rw.commit(), Error);
}

}  // namespace
}  // namespace ridge
