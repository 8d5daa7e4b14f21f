// What linear_epilogues takes up into a product, and what it has to leave: a linear layer computes
// activation(product + bias + residual), in this order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ridge/ops/op.h"
#include "ridge/passes/passes.h"
#include "ridge/run/reference.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;

// Products of x [5, 8] by a weight [8, 8], and y, which is read.
struct Layers {
  Graph graph;
  Value x = graph.input("x", {DType::f32, {5, 8}});
  Value weight = graph.parameter("weight", {8, 8}, Init::normal(1.0f));
  Value bias = graph.parameter("bias", {8}, Init::normal(1.0f));

  std::vector<double> computed() {
    ReferenceValues fed;
    for (const Value& operand : {x, weight, bias}) {
      std::vector<double>& values = fed[operand.id];
      for (std::int64_t i = 0; i < operand.type().numel(); ++i)
        values.push_back(std::sin(static_cast<double>(fed.size() * 100 + values.size())));
    }
    return evaluate_reference(graph, std::move(fed)).at(graph.find("y").id);
  }
  // The operators after the pass, which must compute what was computed before it.
  std::vector<std::string> rewritten(Value y) {
    graph.keep(y, "y");
    const std::vector<double> before = computed();
    linear_epilogues(graph);
    const std::vector<double> after = computed();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-12) << i;
    std::vector<std::string> operators;
    for (const Node& node : graph.nodes()) {
      operators.emplace_back(name_of(*node.op));
      const auto* layer = std::get_if<Linear>(&node.op->variant());
      if (!layer) continue;
      operators.back() += layer->bias ? " bias" : "";
      operators.back() += layer->residual ? " residual" : "";
      if (layer->epilogue != Epilogue::none) operators.back() += " relu";
    }
    return operators;
  }
};

TEST(LinearEpilogues, TakeBiasResidualAndActivation) {
  Layers layers;
  const Value y = add(project(layers.x, layers.weight), layers.bias);
  EXPECT_THAT(layers.rewritten(relu(add(layers.x, y))), ElementsAre("linear bias residual relu"));
}

// What is added behind an activation is no residual before it, and neither is a second one.
TEST(LinearEpilogues, LeaveSumsBehindAnActivation) {
  for (const bool swapped : {false, true}) {
    Layers layers;
    const Value y = relu(add(project(layers.x, layers.weight), layers.bias));
    EXPECT_THAT(layers.rewritten(swapped ? add(layers.x, y) : add(y, layers.x)),
                ElementsAre("linear bias relu", "add"));
  }
  Layers layers;
  const Value y = relu(project(layers.x, layers.weight));
  EXPECT_THAT(layers.rewritten(add(y, layers.bias)), ElementsAre("linear relu", "add"));
}

TEST(LinearEpilogues, LeaveASecondResidualAndASecondActivation) {
  Layers layers;
  const Value y = add(project(layers.x, layers.weight), layers.x);
  EXPECT_THAT(layers.rewritten(relu(relu(add(y, layers.x)))),
              ElementsAre("linear residual", "add", "relu", "relu"));
}

// The product is read twice, or after the run.
TEST(LinearEpilogues, LeaveWhatIsNeededItself) {
  {
    Layers layers;
    const Value y = project(layers.x, layers.weight);
    EXPECT_THAT(layers.rewritten(add(y, y)), ElementsAre("matmul", "add"));
  }
  Layers layers;
  const Value y = project(layers.x, layers.weight);
  layers.graph.keep(y, "product");
  EXPECT_THAT(layers.rewritten(relu(y)), ElementsAre("matmul", "relu"));
}

}  // namespace
}  // namespace ridge
