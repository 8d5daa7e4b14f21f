#include "ridge/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/op.h"
#include "ridge/ops/silu.h"
#include "ridge/passes/autodiff.h"
#include "ridge/plan/lifetimes.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TensorType vector4{DType::f32, {4}};
const TensorType scalar{DType::f32, {}};

TEST(Graph, NodesRecordOperandsScopeAndPhase) {
  Graph graph;
  const Value x = graph.input("x", vector4);
  Value y, z;
  {
    const Scope scope(graph, "block");
    y = add(x, x);
  }
  {
    const PhaseScope phase(graph, Phase::optimizer);
    z = mul(y, x);
  }
  ASSERT_EQ(graph.nodes().size(), 2u);
  const Node &first = graph.nodes()[0], &second = graph.nodes()[1];
  EXPECT_EQ(name_of(*first.op), "add");
  EXPECT_THAT(first.inputs, ElementsAre(x.id, x.id));
  EXPECT_THAT(first.outputs, ElementsAre(y.id));
  EXPECT_EQ(graph.scope_name(first.scope), "block");
  EXPECT_EQ(first.phase, Phase::forward);
  EXPECT_THAT(second.inputs, ElementsAre(y.id, x.id));
  EXPECT_EQ(graph.scope_name(second.scope), "");
  EXPECT_EQ(second.phase, Phase::optimizer);
  EXPECT_EQ(graph.info(x.id).producer, no_node);
  EXPECT_EQ(graph.info(z.id).producer, 1u);
  EXPECT_EQ(z.type(), vector4);
}

TEST(Graph, ScopesNestAndCanBeReentered) {
  Graph graph;
  ScopeId attention = 0;
  {
    const Scope layers(graph, "layers.0");
    {
      const Scope inner(graph, "attention");
      attention = graph.current_scope();
      EXPECT_EQ(graph.scope_name(attention), "layers.0.attention");
    }
    EXPECT_EQ(graph.scope_name(graph.current_scope()), "layers.0");
    const Scope again(graph, "attention");
    EXPECT_EQ(graph.current_scope(), attention);
  }
  EXPECT_EQ(graph.scope_name(graph.current_scope()), "");
  {
    const Scope by_id(graph, attention);
    EXPECT_EQ(graph.current_scope(), attention);
  }
  EXPECT_EQ(graph.current_scope(), 0u);
  EXPECT_EQ(graph.scope_count(), 3u);  // the root and the two
}

TEST(Graph, ParametersAreNamedByTheirScope) {
  Graph graph;
  const Value a = graph.parameter("weight", {4}, Init::ones());
  Value b;
  {
    const Scope scope(graph, "norm");
    b = graph.parameter("weight", {4}, Init::normal(0.02f));
  }
  EXPECT_EQ(graph.find("weight"), a);
  EXPECT_EQ(graph.find("norm.weight"), b);
  EXPECT_FALSE(graph.find("weigh"));
  EXPECT_THAT(graph.parameters(), ElementsAre(a, b));
  EXPECT_EQ(graph.info(b.id).init, Init::normal(0.02f));
  EXPECT_EQ(graph.info(b.id).role, Role::parameter);
  EXPECT_TRUE(graph.info(b.id).persistent);
}

TEST(Graph, RefusesANameTwice) {
  Graph graph;
  const Scope scope(graph, "norm");
  graph.parameter("weight", {4}, Init::ones());
  EXPECT_THAT(message_of<UsageError>([&] { graph.parameter("weight", {4}, Init::ones()); }),
              HasSubstr("norm.weight"));
  EXPECT_THROW(graph.state("norm.weight", vector4, Role::optimizer_state, Init::zeros()),
               UsageError);
}

TEST(Graph, RefusesValuesOfAnotherGraph) {
  Graph graph, other;
  const Value x = graph.input("x", vector4), foreign = other.input("x", vector4);
  EXPECT_THAT(message_of<UsageError>([&] { add(x, foreign); }), HasSubstr("add"));
  EXPECT_THROW(graph.apply1(Add{}, {x, Value{}}), UsageError);
  EXPECT_TRUE(graph.nodes().empty());
}

TEST(Graph, AnOperatorThatRefusesItsOperandsLeavesTheGraphAsItWas) {
  Graph graph;
  const Value x = graph.input("x", vector4), y = graph.input("y", {DType::f32, {3}});
  EXPECT_THROW(add(x, y), ShapeError);
  EXPECT_TRUE(graph.nodes().empty());
  EXPECT_EQ(graph.value_count(), 2u);
}

TEST(Graph, KeptAndRenamedValues) {
  Graph graph;
  const Value x = graph.input("x", vector4), y = add(x, x), z = mul(x, y);
  EXPECT_FALSE(graph.find(""));  // though y and z have no name
  graph.keep(y, "twice");
  graph.set_role(z, Role::gradient, "w.grad");
  EXPECT_EQ(graph.find("twice"), y);
  EXPECT_TRUE(graph.info(y.id).kept);
  EXPECT_EQ(graph.find("w.grad"), z);
  EXPECT_EQ(graph.info(z.id).role, Role::gradient);
  EXPECT_FALSE(graph.info(z.id).kept);
}

TEST(Graph, PacksPersistentValues) {
  Graph graph;
  const Value a = graph.parameter("a", {3, 5}, Init::ones());
  const Value b = graph.parameter("b", {4}, Init::ones());
  const Value c = graph.parameter("c", {2, 5}, Init::normal(1.0f));
  const Value whole = graph.pack(std::array{c, a}, "ca");
  EXPECT_EQ(graph.find("ca"), whole);
  EXPECT_EQ(whole.type(), (TensorType{DType::f32, {5, 5}}));
  EXPECT_EQ(graph.info(whole.id).role, Role::parameter);
  EXPECT_TRUE(graph.info(whole.id).persistent);
  EXPECT_THAT(graph.info(whole.id).parts, ElementsAre(c.id, a.id));
  EXPECT_EQ(graph.info(a.id).whole, whole.id);
  EXPECT_EQ(graph.info(a.id).offset, 2 * 5 * 4u);
  EXPECT_EQ(graph.info(c.id).offset, 0u);
  EXPECT_EQ(graph.info(a.id).init, Init::ones());
  EXPECT_THAT(graph.parameters(), ElementsAre(a, b, c));
  EXPECT_THAT(graph.trainables(), ElementsAre(b, whole));
}

TEST(Graph, RefusesToPackWhatDoesNotFit) {
  Graph graph;
  const Value a = graph.parameter("a", {3, 5}, {}), b = graph.parameter("b", {3, 4}, {});
  const Value s = graph.state("s", {DType::f32, {3, 5}}, Role::optimizer_state, {});
  const Value computed = add(a, a), one = graph.parameter("scalar", {}, {});
  const Value half = graph.state("half", {DType::bf16, {3, 5}}, Role::parameter, {});
  auto refusal = [&]<class E>(E*, std::vector<Value> parts) {
    const std::size_t before = graph.value_count();
    const std::string message = message_of<E>([&] { graph.pack(parts, "whole"); });
    EXPECT_EQ(graph.value_count(), before);
    EXPECT_EQ(graph.info(a.id).whole, no_value);
    return message;
  };
  UsageError* const usage = nullptr;
  ShapeError* const shape = nullptr;
  EXPECT_THAT(refusal(usage, {}), HasSubstr("of no parts"));
  EXPECT_THAT(refusal(usage, {a, a}), HasSubstr("packed already"));
  EXPECT_THAT(refusal(usage, {a, s}), HasSubstr("no persistent parameter"));
  EXPECT_THAT(refusal(usage, {a, computed}), HasSubstr("no persistent parameter"));
  EXPECT_THAT(refusal(shape, {a, b}), HasSubstr("b, a f32[3, 4]"));
  EXPECT_THAT(refusal(shape, {a, half}), HasSubstr("half, a bf16[3, 5]"));
  EXPECT_THAT(refusal(shape, {one}), HasSubstr("scalar"));
  const Value c = graph.parameter("c", {1, 4}, {}), bc = graph.pack(std::array{b, c}, "bc");
  EXPECT_THROW(graph.pack(std::array{c}, "again"), UsageError);
  EXPECT_THROW(graph.pack(std::array{bc}, "again"), UsageError);
}

TEST(Graph, CountsNoCopyAsAParameter) {
  Graph graph;
  const Value a = graph.parameter("a", {3, 5}, Init::ones());
  const Value b = graph.parameter("b", {1, 5}, Init::ones());
  const Value both = graph.pack(std::array{a, b}, "ab");
  const Value copy = graph.rounded_copy(both, DType::bf16, "ab.bf16");
  EXPECT_EQ(copy.type(), (TensorType{DType::bf16, {4, 5}}));
  EXPECT_EQ(graph.info(copy.id).copy_of, both.id);
  EXPECT_TRUE(graph.info(copy.id).persistent);
  EXPECT_THAT(graph.parameters(), ElementsAre(a, b));
  EXPECT_THAT(graph.trainables(), ElementsAre(both));
  EXPECT_THROW(graph.rounded_copy(copy, DType::bf16, "again"), UsageError);
  EXPECT_THROW(graph.rounded_copy(add(a, a), DType::bf16, "computed"), UsageError);
}

TEST(Graph, SplitsWeightsInPlaceOfTheirCopies) {
  Graph graph;
  const Value a = graph.parameter("a", {3, 5}, Init::ones());
  const Value b = graph.parameter("b", {1, 5}, Init::ones());
  const Value c = graph.parameter("c", {2, 2}, Init::ones());
  const Value both = graph.pack(std::array{a, b}, "ab");
  const Value of_both = graph.rounded_copy(both, DType::bf16, "ab.bf16");
  const Value of_c = graph.rounded_copy(c, DType::bf16, "c.bf16");
  EXPECT_THROW(graph.split(a, of_both), UsageError);
  EXPECT_THROW(graph.split(c, of_both), UsageError);
  EXPECT_THROW(graph.split(c, graph.rounded_copy(c, DType::f16, "c.f16")), UsageError);
  EXPECT_EQ(graph.split(both, of_both), both);
  const Value split_c = graph.split(c, of_c);
  EXPECT_EQ(both.type(), (TensorType{DType::split_f32, {4, 5}}));
  EXPECT_EQ(split_c.type(), (TensorType{DType::split_f32, {2, 2}}));
  EXPECT_THAT(graph.parameters(), ElementsAre(a, b, c));
  EXPECT_THAT(graph.trainables(), ElementsAre(both, split_c));
  for (const Value& parameter : graph.parameters()) EXPECT_EQ(parameter.dtype(), DType::f32);
  // They and their upper halves have one memory.
  const Lifetimes life = lifetimes_of(graph);
  for (const Value& value : {a, b, of_both}) EXPECT_EQ(life.storage[value.id], both.id);
  for (const Value& value : {c, of_c}) EXPECT_EQ(life.storage[value.id], split_c.id);
  EXPECT_EQ(life.offset[of_both.id], 0u);
  EXPECT_EQ(life.bytes[both.id], 128u);
  EXPECT_EQ(life.bytes[of_both.id], 0u);
}

TEST(Gradients, GoToTheBackwardPhaseUnderTheForwardScope) {
  Graph graph;
  const Value x = graph.input("x", scalar);
  Value loss;
  {
    const Scope scope(graph, "square");
    loss = mul(x, x);
  }
  const auto grads = gradients(loss, std::array{x});
  ASSERT_EQ(grads.size(), 1u);
  EXPECT_EQ(grads[0].type(), scalar);
  ASSERT_GT(graph.nodes().size(), 1u);
  for (std::size_t n = 1; n < graph.nodes().size(); ++n) {
    EXPECT_EQ(graph.nodes()[n].phase, Phase::backward);
    EXPECT_EQ(graph.scope_name(graph.nodes()[n].scope), "square");
  }
  add(x, x);
  EXPECT_EQ(graph.nodes().back().phase, Phase::forward) << "the phase ends with the gradients";
}

TEST(Gradients, NeedAScalarLoss) {
  Graph graph;
  const Value x = graph.input("x", vector4), y = add(x, x);
  EXPECT_THAT(message_of<ShapeError>([&] { gradients(y, std::array{x}); }), HasSubstr("f32[4]"));
}

TEST(Gradients, NeedALossThatDependsOnTheValue) {
  Graph graph;
  const Value x = graph.input("x", scalar), other = graph.input("other", scalar);
  const Value loss = mul(x, x);
  add(other, x);  // computed, but not on the way to the loss
  EXPECT_THAT(message_of<UsageError>([&] {
                gradients(loss, std::array{x, other});
              }),
              HasSubstr("other"));
}

TEST(Gradients, NeedOperatorsThatHaveOne) {
  Graph graph;
  const Value x = graph.input("x", scalar);
  const Value loss = graph.apply1(SiluGrad{}, {x, x});
  EXPECT_THAT(message_of<UsageError>([&] { gradients(loss, std::array{x}); }),
              HasSubstr("silu_grad"));
}

TEST(Gradients, StopAtTheValuesAskedFor) {
  Graph graph;
  const Value x = graph.input("x", scalar), constant = graph.input("c", scalar);
  const Value factor = graph.apply1(SiluGrad{}, {constant, constant});
  EXPECT_NO_THROW(gradients(mul(x, factor), std::array{x, factor}));
}

}  // namespace
}  // namespace ridge
