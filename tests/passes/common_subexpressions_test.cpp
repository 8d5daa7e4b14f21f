#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/passes/passes.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(name_of(*node.op));
  return names;
}

Value chain(Value x, float factor) { return scale(silu(scale(x, factor)), 3.0f); }

TEST(CommonSubexpressions, AreComputedOnceHoweverLongTheChain) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4}});
  graph.keep(add(chain(x, 2.0f), chain(x, 2.0f)), "y");
  EXPECT_EQ(common_subexpressions(graph), 3u);
  EXPECT_THAT(operators(graph), ElementsAre("scale", "silu", "scale", "add"));
  EXPECT_EQ(graph.nodes()[3].inputs[0], graph.nodes()[3].inputs[1]);
}

TEST(CommonSubexpressions, HaveEqualAttributesAndOperands) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4}}), y = graph.input("y", {DType::f32, {4}});
  graph.keep(add(chain(x, 2.0f), add(chain(x, 4.0f), chain(y, 2.0f))), "sum");
  EXPECT_EQ(common_subexpressions(graph), 0u);
}

TEST(CommonSubexpressions, LeaveWhatIsRead) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {4}});
  graph.keep(silu(x), "first");
  graph.keep(silu(x), "second");
  EXPECT_EQ(common_subexpressions(graph), 0u);
}

}  // namespace
}  // namespace ridge
