// Operands that an operator does not take: the message names the operator and shows the operands.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/base/error.h"
#include "ridge/ops/op.h"
#include "tests/ops/infer_message.h"
#include "tests/ops/types.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ShapeErrors, NumberOfOperands) {
  EXPECT_THAT(message_of(Relu{}, {f32({2, 3}), f32({4})}),
              AllOf(HasSubstr("relu"), HasSubstr("f32[2, 3]"), HasSubstr("f32[4]")));
  EXPECT_THAT(message_of(Fill{}, {f32({5})}), AllOf(HasSubstr("fill"), HasSubstr("f32[5]")));
}

TEST(ShapeErrors, Dtypes) {
  EXPECT_THAT(message_of(Mul{}, {f32({2}), bf16({2})}),
              AllOf(HasSubstr("mul"), HasSubstr("f32[2]"), HasSubstr("bf16[2]")));
  EXPECT_THAT(message_of(Silu{}, {{DType::i32, {3}}}),
              AllOf(HasSubstr("silu"), HasSubstr("i32[3]")));
  EXPECT_THAT(message_of(Cast{.to = DType::i32}, {f32({3})}),
              AllOf(HasSubstr("cast"), HasSubstr("f32[3]"), HasSubstr("i32")));
  EXPECT_THAT(message_of(Fill{.type = {DType::i32, {3}}}, {}),
              AllOf(HasSubstr("fill"), HasSubstr("i32[3]")));
}

TEST(ShapeErrors, Broadcasting) {
  EXPECT_THAT(message_of(Add{}, {f32({2, 3}), f32({2})}),
              AllOf(HasSubstr("add"), HasSubstr("[2, 3]"), HasSubstr("[2]")));
  // Of gradients both operands have one shape.
  EXPECT_THAT(message_of(ReluGrad{}, {f32({2, 3}), f32({3})}),
              AllOf(HasSubstr("relu_grad"), HasSubstr("[2, 3]"), HasSubstr("[3]")));
}

TEST(ShapeErrors, SumsToShapesThatDoNotBroadcast) {
  for (const Shape& to : {Shape{2}, Shape{4, 3}, Shape{1, 2, 3}})
    EXPECT_THAT(message_of(SumTo{.shape = to}, {f32({2, 3})}),
                AllOf(HasSubstr("sum_to"), HasSubstr("f32[2, 3]"), HasSubstr(to.to_string())));
}

TEST(ShapeErrors, ReshapesOfAnotherSize) {
  EXPECT_THAT(message_of(Reshape{.shape = {7}}, {f32({2, 3})}),
              AllOf(HasSubstr("reshape"), HasSubstr("f32[2, 3]"), HasSubstr("[7]")));
}

TEST(ShapeErrors, OrdersThatAreNoPermutation) {
  // Twice the same, beyond the rank, an entry after the last dimension.
  for (const Permute& op : {Permute{{1, 1}}, Permute{{0, 2}}, Permute{{1, 0, 2}}})
    EXPECT_THAT(message_of(op, {f32({4, 9})}), AllOf(HasSubstr("permute"), HasSubstr("f32[4, 9]")));
  EXPECT_THAT(message_of(Permute{{1, 0, 2}}, {f32({4, 9})}), HasSubstr("[1, 0, 2, 0, 0, 0]"));
}

TEST(ShapeErrors, Products) {
  EXPECT_THAT(message_of(MatMul{}, {f32({2, 3}), f32({4, 5})}),
              AllOf(HasSubstr("matmul"), HasSubstr("f32[2, 3]"), HasSubstr("f32[4, 5]")));
  EXPECT_THAT(message_of(MatMul{}, {f32({2, 2, 3}), f32({5, 3, 4})}),
              AllOf(HasSubstr("matmul"), HasSubstr("f32[2, 2, 3]"), HasSubstr("f32[5, 3, 4]")));
  EXPECT_THAT(message_of(MatMul{.out = DType::bf16}, {f32({2, 3}), f32({3, 2})}),
              HasSubstr("in their dtype or in f32, not in bf16"));
}

TEST(ShapeErrors, NormWeights) {
  EXPECT_THAT(message_of(RmsNorm{}, {f32({2, 3}), f32({4})}),
              AllOf(HasSubstr("rms_norm"), HasSubstr("f32[4]"), HasSubstr("f32[3]")));
}

TEST(ShapeErrors, FusedOperators) {
  EXPECT_THAT(message_of(SwiGlu{}, {f32({2, 3})}),
              AllOf(HasSubstr("swiglu"), HasSubstr("3 columns"), HasSubstr("f32[2, 3]")));
  EXPECT_THAT(message_of(SwiGlu{}, {f32({2, 3}), f32({3, 2})}), HasSubstr("differ in type"));
  EXPECT_THAT(message_of(AddRmsNorm{}, {bf16({2, 3}), f32({2, 3}), f32({3})}),
              AllOf(HasSubstr("add_rms_norm"), HasSubstr("bf16")));
  EXPECT_THAT(message_of(AddRmsNormGrad{}, {f32({2, 3}), f32({2, 3})}),
              AllOf(HasSubstr("add_rms_norm_grad"), HasSubstr("5 operands")));
  EXPECT_THAT(message_of(MaskedSoftmax{}, {f32({4, 3})}),
              AllOf(HasSubstr("masked_softmax: 4 queries and 3 keys"), HasSubstr("f32[4, 3]")));
  EXPECT_THAT(message_of(SplitHeads{{2, 1, 4}}, {f32({1, 3, 15})}),
              AllOf(HasSubstr("split_heads"), HasSubstr("f32[1, 3, 15]"), HasSubstr("2 + 2 * 1")));
  EXPECT_THAT(message_of(SplitHeads{{1, 1, 5, 1e4f}}, {f32({1, 3, 15})}), HasSubstr("pairs"));
  const std::vector<TensorType> parts{f32({1, 2, 3, 4}), f32({1, 1, 3, 4}), f32({1, 2, 3, 4})};
  EXPECT_THAT(message_of(MergeHeads{{2, 1, 4}}, parts),
              AllOf(HasSubstr("merge_heads"), HasSubstr("operand 2")));
  EXPECT_THAT(message_of(AdamWAll{}, std::vector<TensorType>(4, f32({3}))),
              AllOf(HasSubstr("adamw_all"), HasSubstr("4 for each parameter")));
  EXPECT_THAT(message_of(AdamWAll{.copied = {false, false}}, std::vector<TensorType>(5, f32({3}))),
              HasSubstr("2 parameters of 1"));
  EXPECT_THAT(message_of(AdamWAll{.copied = {true}}, std::vector<TensorType>(6, f32({3}))),
              HasSubstr("adamw_all does not take f32 as operand 5"));
  const TensorType split{DType::split_f32, {3}};
  EXPECT_THAT(message_of(AdamWAll{}, {f32({3}), split, f32({3}), split, f32({3})}),
              HasSubstr("operand 3 is split_f32[3] where f32[3] is needed"));
  EXPECT_THAT(message_of(AdamW{.scaled = true}, std::vector<TensorType>(5, f32({3}))),
              HasSubstr("operand 4 is f32[3] where f32[4] is needed"));
  EXPECT_THAT(message_of(UpdateLossScale{}, {f32({}), f32({2}), f32({4}), f32({})}),
              HasSubstr("operand 2 is f32[4] where f32[3] is needed"));
  // bf16 and f16 never meet in one operator.
  EXPECT_THAT(message_of(RmsNorm{.out = DType::f16}, {bf16({2, 3}), f32({3})}),
              HasSubstr("rms_norm does not take bf16 together with f16"));
  EXPECT_THAT(message_of(AddRmsNorm{.out = DType::f16}, {f32({2, 3}), bf16({2, 3}), f32({3})}),
              HasSubstr("bf16 together with f16"));
  const TensorType f16{DType::f16, {2, 3}};
  EXPECT_THAT(message_of(RmsNormGrad{}, {f16, bf16({2, 3}), f32({3}), f32({2})}),
              HasSubstr("f16 together with bf16"));
}

TEST(ShapeErrors, PointwisePrograms) {
  using Code = Pointwise::Code;
  EXPECT_THAT(message_of(Pointwise{.results = {{0}}}, {}), HasSubstr("needs operands"));
  EXPECT_THAT(message_of(Pointwise{}, {f32({3})}), HasSubstr("results"));
  EXPECT_THAT(message_of(Pointwise{.results = {{0}}}, {f32({3}), f32({4})}),
              AllOf(HasSubstr("pointwise"), HasSubstr("f32[4]")));
  // A step that uses its own result, and a result that no step computes.
  EXPECT_THAT(message_of(Pointwise{.steps = {{Code::add, 0, 1}}, .results = {{1}}}, {f32({3})}),
              HasSubstr("a step uses register 1 where there are 1"));
  EXPECT_THAT(message_of(Pointwise{.steps = {{Code::relu, 0}}, .results = {{2}}}, {f32({3})}),
              HasSubstr("a result uses register 2 where there are 2"));
}

TEST(ShapeErrors, LinearLayers) {
  EXPECT_THAT(message_of(Linear{}, {f32({2, 3}), f32({5, 4})}),
              AllOf(HasSubstr("linear"), HasSubstr("inner extents 3 and 4 differ")));
  EXPECT_THAT(message_of(Linear{.bias = true}, {f32({2, 3}), f32({5, 3})}), HasSubstr("linear"));
  EXPECT_THAT(message_of(Linear{.bias = true}, {f32({2, 3}), f32({5, 3}), f32({3})}),
              AllOf(HasSubstr("linear"), HasSubstr("f32[5]")));
  EXPECT_THAT(message_of(Linear{.residual = true}, {f32({2, 3}), f32({5, 3}), f32({5})}),
              AllOf(HasSubstr("linear"), HasSubstr("f32[2, 5]")));
}

TEST(ShapeErrors, WindowsOfImages) {
  const TensorType image = f32({1, 6, 9, 12});
  EXPECT_THAT(message_of(WindowAttention{{.n_heads = 2, .side = 2}}, {image, f32({2, 4, 4})}),
              HasSubstr("does not divide into windows of 2 x 2"));
  EXPECT_THAT(message_of(WindowAttention{{.n_heads = 5, .side = 3}}, {image, f32({5, 9, 9})}),
              HasSubstr("of 5 heads"));
  EXPECT_THAT(message_of(WindowAttention{{.n_heads = 2, .side = 3, .shift_down = 3}},
                         {image, f32({2, 9, 9})}),
              HasSubstr("no shift by 3"));
  EXPECT_THAT(message_of(WindowAttention{{.side = 3, .shift_across = 1, .spread = true}},
                         {image, f32({1, 9, 9})}),
              HasSubstr("spread windows"));
  EXPECT_THAT(message_of(WindowAttention{{.n_heads = 2, .side = 3}}, {image, f32({2, 9, 8})}),
              AllOf(HasSubstr("window_attention"), HasSubstr("f32[2, 9, 9]")));
}

}  // namespace
}  // namespace ridge
