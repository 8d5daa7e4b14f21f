#include "ridge/analyze/tensor_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/base/reductions.h"
#include "ridge/cpu/device.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

TEST(TensorOperators, ReadExtents) {
  EXPECT_EQ(shape_from_dims("64-1024-1024", "--dims"), (Shape{64, 1024, 1024}));
  EXPECT_EQ(shape_from_dims("1", "--dims"), Shape{1});
  for (const char* text : {"", "-", "3-", "-3", "3--4", "3x4", "0-1", "1-2-3-4-5-6-7",
                           "4000000000-4000000000", "99999999999999999999"})
    EXPECT_THAT(message_of<UsageError>([&] { shape_from_dims(text, "--dims"); }),
                HasSubstr("--dims is"))
        << text;
}

TEST(TensorOperators, AreWhatTheirNamesSay) {
  for (const TensorOpName& op : tensor_operators()) {
    if (op.type == TensorOpType::sparse) continue;
    const bool two = op.type == TensorOpType::binary || op.type == TensorOpType::product;
    const OperatorCase made = tensor_operator({std::string(op.name), {8, 8}, {8, 8}});
    EXPECT_EQ(made.in.size(), two ? 2u : 1u) << op.name;
    EXPECT_THAT(made.label, HasSubstr(op.name));
    const Shape out = infer(made.op, made.in)[0].shape;
    EXPECT_EQ(out, op.type == TensorOpType::reduction ? Shape{} : (Shape{8, 8})) << op.name;
  }
}

TEST(TensorOperators, AddRowsOfSparseTensors) {
  const OperatorCase made = tensor_operator({"add_", {100, 8}, {6}, DType::bf16, false, true});
  EXPECT_EQ(made.label, "add_(100-8, sparse 6-8)");
  EXPECT_EQ(made.in[2], (TensorType{DType::bf16, {6, 8}}));
  const Cost work = cost_of(made);
  EXPECT_EQ(work.flops, 48);
  EXPECT_EQ(work.bytes(), 3 * 48 * 2 + 6 * 4);
  EXPECT_THAT(message_of<UsageError>([] {
                tensor_operator({"add", {100, 8}, {6}, DType::f32, false, true});
              }),
              HasSubstr("in place"));
  EXPECT_THAT(message_of<UsageError>([] {
                tensor_operator({"mul_", {100, 8}, {6}, DType::f32, false, true});
              }),
              HasSubstr("sparse operator 'mul'"));
  EXPECT_THROW(tensor_operator({"add_", {9, 9, 8}, {6}, DType::f32, false, true}), UsageError);
}

TEST(TensorOperators, RefuseWhatCannotBe) {
  EXPECT_THAT(message_of<UsageError>([] {
                tensor_operator({"addd", {2}, {2}});
              }),
              HasSubstr("argmin"));
  EXPECT_THAT(message_of<UsageError>([] { tensor_operator({"add", {2}, {3}}); }), HasSubstr("add"));
  EXPECT_THAT(message_of<UsageError>([] {
                tensor_operator({"sum_", {2}, {}});
              }),
              HasSubstr("in place"));
  EXPECT_THAT(message_of<UsageError>([] {
                tensor_operator({"add_", {2}, {5, 2}});
              }),
              HasSubstr("in place"));
}

TEST(TensorOperators, OfTheListsCanAllBeMade) {
  EXPECT_EQ(predefined_operators({4, 4}, {4, 4}, DType::f32).size(), 18u);
  for (const TensorOpRequest& one : predefined_operators({4, 4}, {4, 4}, DType::bf16))
    EXPECT_EQ(tensor_operator(one).in[0].dtype, DType::bf16);
  EXPECT_EQ(model_operators(DType::f32).size(), 36u);
  for (const TensorOpRequest& one : model_operators(DType::f32)) {
    const OperatorCase made = tensor_operator(one);
    EXPECT_EQ(made.in_place, one.name.ends_with('_')) << made.label;
  }
}

TEST(OperatorTiming, TimesEveryRepetition) {
  CpuDevice device(1);
  for (const char* name : {"add_", "norm", "argmax", "matmul", "exp"}) {
    const std::vector<double> seconds =
        time_operator(device, tensor_operator({name, {16, 16}, {16, 16}}),
                      {.warmup = 1, .repetitions = 3, .launches = 2});
    ASSERT_EQ(seconds.size(), 3u) << name;
    for (const double s : seconds) EXPECT_GT(s, 0) << name;
  }
}

TEST(OperatorTiming, SaysWhatDoesNotFit) {
  CpuDevice device(1);
  EXPECT_THROW(
      time_operator(device, tensor_operator({"add", {64, 64}, {64, 64}}), {.most_bytes = 40'000}),
      OutOfMemoryError);
}

// What kernels do with parts: the first place of the extreme wins, in whatever order parts meet.
TEST(Reductions, OfExtremesKeepTheFirstPlace) {
  LargestOf early, late, none;
  early.add(3.0f, 4);
  late.add(3.0f, 9);
  LargestOf all = late;
  all.merge(early);
  EXPECT_EQ(all.index, 4);
  all = early;
  all.merge(late);
  all.merge(none);
  EXPECT_EQ(all.index, 4);
  none.merge(late);
  EXPECT_EQ(none.index, 9);
}

TEST(Reductions, OfExtremesTakeNanForTheLargest) {
  LargestOf state;
  state.add(5.0f, 0);
  state.add(std::numeric_limits<float>::quiet_NaN(), 1);
  state.add(7.0f, 2);
  EXPECT_EQ(state.index, 1);
  EXPECT_TRUE(std::isnan(state.value(3)));
}

TEST(Reductions, OfVarianceDoNotDrownInALargeMean) {
  VarianceOf first, second;
  for (int i = 0; i < 1000; ++i)
    (i < 300 ? first : second).add(1e4f + static_cast<float>(i % 2), i);
  first.merge(second);
  first.merge({});
  EXPECT_NEAR(first.value(1000), 0.25 * 1000 / 999, 1e-5);
}

}  // namespace
}  // namespace ridge
