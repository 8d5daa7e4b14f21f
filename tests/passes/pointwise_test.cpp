// Which elementwise operators the pass pointwise joins in a chain.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/ops/op.h"
#include "ridge/passes/passes.h"
#include "tests/ops/cases.h"
#include "tests/ops/every_operator.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;

struct Chains {
  Graph graph;
  std::size_t found = 0;

  Value input(const Shape& shape, std::string name) {
    return graph.input(std::move(name), {DType::f32, shape});
  }
  void rewrite(Value y) {
    graph.keep(y, "y");
    found = pointwise_chains(graph);
  }
  std::vector<std::string> operators() const {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes()) {
      std::string name(name_of(*node.op));
      if (const auto* chain = std::get_if<Pointwise>(&node.op->variant()))
        for (const Pointwise::Step& step : chain->steps) name += " " + name_of(step);
      names.push_back(name);
    }
    return names;
  }
};

TEST(PointwiseChains, TakeBiasesAndActivations) {
  Chains chains;
  const Value x = chains.input({4, 6, 8}, "x"), bias = chains.input({8}, "bias");
  const Value scale = chains.input({4, 1, 8}, "scale");
  chains.rewrite(mul(activation(add(bias, x), ActivationKind::gelu), scale));
  EXPECT_EQ(chains.found, 1u);
  EXPECT_THAT(chains.operators(), ElementsAre("pointwise add gelu mul"));
  EXPECT_EQ(chains.graph.nodes()[0].inputs.size(), 3u);
}

TEST(PointwiseChains, EndWhereTheShapeGrows) {
  Chains chains;
  const Value x = chains.input({4, 6, 8}, "x"), s = chains.input({4, 1, 8}, "s");
  const Value weight = activation(add(s, s), ActivationKind::sigmoid);
  chains.rewrite(relu(mul(x, weight)));
  EXPECT_EQ(chains.found, 2u);
  EXPECT_THAT(chains.operators(), ElementsAre("pointwise add sigmoid", "pointwise mul relu"));
}

TEST(PointwiseChains, TakeGradientsOfActivations) {
  Chains chains;
  const Value dy = chains.input({4, 8}, "dy"), x = chains.input({4, 8}, "x");
  const Value dx = chains.graph.apply1(ActivationGrad{ActivationKind::hard_swish},
                                       {mul(dy, chains.input({8}, "w")), x});
  chains.rewrite(dx);
  EXPECT_THAT(chains.operators(), ElementsAre("pointwise mul hard_swish_grad"));
}

// Both operands of the sum come from chains, which become one.
TEST(PointwiseChains, JoinWhereTheyMeet) {
  Chains chains;
  const Value x = chains.input({4, 8}, "x"), y = chains.input({4, 8}, "z");
  const Value a = relu(scale(x, 2.0f)), b = silu(mul(y, y));
  chains.rewrite(add(a, b));
  EXPECT_EQ(chains.found, 1u);
  EXPECT_THAT(chains.operators(), ElementsAre("pointwise scale relu mul silu add"));
}

// Not if what one of them computes is needed before they meet.
TEST(PointwiseChains, StayApartWhereOneIsNeededEarlier) {
  Chains chains;
  const Value x = chains.input({8, 8}, "x"), y = chains.input({8, 8}, "z");
  const Value a = relu(scale(x, 2.0f));
  const Value b = silu(mul(matmul(a, y), y));
  chains.rewrite(add(a, b));
  EXPECT_THAT(chains.operators(),
              ElementsAre("pointwise scale relu", "matmul", "pointwise mul silu add"));
}

// As squeeze and excitation has it, in either layout.
TEST(PointwiseChains, TakeGradientsOfMeansOverWholeImages) {
  for (const ImageLayout layout : image_layouts) {
    const bool last = layout == ImageLayout::nhwc;
    const Shape image = last ? Shape{2, 5, 7, 3} : Shape{2, 3, 5, 7};
    const auto pooled = [&](std::int64_t rows) {
      return last ? Shape{2, rows, 1, 3} : Shape{2, 3, rows, 1};
    };
    for (const std::int64_t rows : {1, 5}) {
      Chains chains;
      const Value share = chains.graph.apply1(AdaptiveAvgPool2dGrad{layout, image},
                                              {chains.input(pooled(rows), "mean")});
      chains.rewrite(relu(add(share, chains.input(image, "dy"))));
      if (rows > 1) {
        EXPECT_THAT(chains.operators(),
                    ElementsAre("adaptive_avg_pool2d_grad", "pointwise add relu"));
        continue;
      }
      ASSERT_THAT(chains.operators(), ElementsAre("pointwise scale add relu"));
      const auto& chain = std::get<Pointwise>(chains.graph.nodes()[0].op->variant());
      EXPECT_FLOAT_EQ(chain.steps[0].factor, 1.0f / 35);
    }
  }
}

// Of nothing that is as large as they are there can be no chain.
TEST(PointwiseChains, LeaveSharesAlone) {
  Chains chains;
  const Value share = chains.graph.apply1(AdaptiveAvgPool2dGrad{ImageLayout::nchw, {2, 3, 5, 7}},
                                          {chains.input({2, 3, 1, 1}, "mean")});
  chains.rewrite(relu(scale(share, 2.0f)));
  EXPECT_EQ(chains.found, 0u);
}

class PointwiseChainsOf : public ::testing::TestWithParam<testing::EveryOperator> {};
INSTANTIATE_TEST_SUITE_P(EveryOperator, PointwiseChainsOf,
                         ::testing::ValuesIn(testing::every_operator()), testing::operator_name);

// The pass names no operator: one is part of a chain because it says so itself (as_step()).
TEST_P(PointwiseChainsOf, TakeWhatSaysThatItIsAStep) {
  for (const testing::OperatorSample& sample : GetParam().samples()) {
    Chains chains;
    std::vector<Value> operands;
    const std::vector<TensorType> types =
        testing::operand_types(sample.op, sample.inputs, DType::f32);
    for (const TensorType& type : types)
      operands.push_back(chains.graph.input("operand " + std::to_string(operands.size()), type));
    const auto step = as_step(sample.op, types);
    const Value y = chains.graph.apply(sample.op, operands)[0];
    if (y.dtype() != DType::f32) continue;
    chains.rewrite(mul(y, chains.input(y.shape(), "factor")));
    const bool is_link = step || std::holds_alternative<Cast>(sample.op.variant());
    EXPECT_EQ(chains.found, is_link ? 1u : 0u);
    if (step) {
      EXPECT_THAT(chains.operators(), ElementsAre("pointwise " + name_of(*step) + " mul"));
    }
  }
}

// One operator alone has a kernel of its own, which a chain of it would only name differently.
TEST(PointwiseChains, AreOfMoreThanOneOperator) {
  Chains chains;
  chains.rewrite(add(chains.input({4, 8}, "x"), chains.input({8}, "bias")));
  EXPECT_EQ(chains.found, 0u);
}

}  // namespace
}  // namespace ridge
