// The facts that operators state about themselves (ridge/ops/operator.h), held to what they
// compute.

#include <algorithm>
#include <set>

#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::for_each_case;
using testing::operand_types;
using testing::operand_values;
using testing::Reals;

template <class T>
class EveryOperatorsTraits : public ::testing::Test {};
TYPED_TEST_SUITE(EveryOperatorsTraits, testing::TypesOf<OpVariant>::type, testing::OperatorName);

template <class T>
std::size_t operand_count(const T& op, std::size_t given) {
  if constexpr (requires { op.operands(given); })
    return op.operands(given).count;
  else
    return op.operands().count;
}

// What multiplies matrices says so, whatever else it does: its FLOPs are then held against the rate
// of products. What only renames has no work at all.
TYPED_TEST(EveryOperatorsTraits, WorkIsWhatItsCostCounts) {
  for_each_case<TypeParam>([](const Sample<TypeParam>& sample, Types in) {
    const Op op(sample.op);
    const Cost cost = sample.op.cost(in, sample.op.infer(in));
    const bool multiplies = is_product(op) || work_of(op) == WorkKind::attention;
    EXPECT_EQ(cost.macs > 0, multiplies);
    if (only_renames(op)) {
      EXPECT_EQ(cost, Cost{});
      EXPECT_TRUE(aliased_input(op, 0, in).has_value());
    }
  });
}

TYPED_TEST(EveryOperatorsTraits, NamesOfOperandsAreAsManyAsOperands) {
  if constexpr (NamesOperands<TypeParam>) {
    for (const Sample<TypeParam>& sample : TypeParam::samples())
      EXPECT_EQ(operand_count(sample.op, sample.inputs.size()), sample.inputs.size());
  }
}

// The same elements in reversed order give the same results in reversed order.
TYPED_TEST(EveryOperatorsTraits, ElementwiseMeansPlaceByPlace) {
  if constexpr (Elementwise<TypeParam>) {
    for (const Sample<TypeParam>& sample : TypeParam::samples()) {
      const Op op(sample.op);
      const std::vector<TensorType> in = operand_types(sample, DType::f32), out = infer(op, in);
      const bool alike =
          std::ranges::all_of(in, [&](const TensorType& x) { return x.shape == out[0].shape; });
      if (!alike) continue;  // one that broadcasts
      std::vector<Reals> values = operand_values(sample, in);
      std::vector<Reals> expected = testing::run_reference(op, in, out, values);
      for (Reals& operand : values) std::ranges::reverse(operand);
      for (Reals& result : expected) std::ranges::reverse(result);
      EXPECT_EQ(testing::run_reference(op, in, out, values), expected);
    }
  } else {
    EXPECT_FALSE(is_elementwise(Op(TypeParam::samples()[0].op)));
  }
}

// Samples fill integer operands with what the operator says that they may hold.
TYPED_TEST(EveryOperatorsTraits, IdsAreInTheirRange) {
  for (const Sample<TypeParam>& sample : TypeParam::samples()) {
    const std::vector<TensorType> in = operand_types(sample, DType::f32);
    for (const SampleInput& input : sample.inputs)
      if (input.type.dtype == DType::i32 && TakesIds<TypeParam>) {
        EXPECT_EQ(input.high, static_cast<double>(id_range(sample.op, in)));
      }
  }
}

TYPED_TEST(EveryOperatorsTraits, ImagesAreThoseOfTheLayout) {
  Op op(TypeParam::samples()[0].op);
  const bool changes = to_channels_last(op);
  EXPECT_TRUE(changes || !to_channels_last(op)) << "a second time";
  if constexpr (OnImages<TypeParam>) {
    EXPECT_EQ(std::get<TypeParam>(op.variant()).layout, ImageLayout::nhwc);
  } else {
    EXPECT_FALSE(changes);
  }
}

TYPED_TEST(EveryOperatorsTraits, NamesInPyTorchAreWhole) {
  for_each_case<TypeParam>([](const Sample<TypeParam>& sample, Types in) {
    const std::string_view name = aten_name(sample.op, in);
    EXPECT_TRUE(name.empty() || (name.starts_with("aten::") && name.size() > 6)) << name;
  });
}

std::int64_t bytes_read(const Op& op, const std::vector<TensorType>& in) {
  return cost(op, in, infer(op, in)).bytes_read;
}
std::int64_t bytes_written(const Op& op, const std::vector<TensorType>& in) {
  return cost(op, in, infer(op, in)).bytes_written;
}

// Numbers by hand, of rows of 40 bytes and squares of 16 elements.
TEST(Traits, PartialOperatorsCountWhatTheyTouch) {
  const TensorType table{DType::f32, {100, 10}}, ids{DType::i32, {3}}, rows{DType::f32, {3, 10}};
  EXPECT_EQ(bytes_read(Embedding{}, {table, ids}), 3 * 4 + 3 * 40) << "the rows that ids name";
  EXPECT_EQ(bytes_written(Embedding{}, {table, ids}), 3 * 40);
  EXPECT_EQ(bytes_read(IndexAdd{}, {table, ids, rows}), 3 * 4 + 2 * 3 * 40);
  EXPECT_EQ(bytes_written(IndexAdd{}, {table, ids, rows}), 3 * 40);
  const Window window{.dim = 0, .begin = 98, .extent = 5};
  EXPECT_EQ(bytes_read(window, {table}), 2 * 40) << "the last three rows lie beyond the end";
  EXPECT_EQ(bytes_written(window, {table}), 5 * 40);
  const TensorType scores{DType::f32, {4, 4}};
  EXPECT_EQ(bytes_read(MaskedSoftmax{}, {scores}), 10 * 4) << "up to the diagonal";
  EXPECT_EQ(bytes_written(MaskedSoftmax{}, {scores}), 16 * 4);
  EXPECT_EQ(bytes_read(MaskedSoftmaxGrad{}, {scores, scores}), 2 * 10 * 4);
  const TensorType x{DType::f32, {8}}, copy{DType::bf16, {8}}, schedule{DType::f32, {3}};
  EXPECT_EQ(bytes_read(AdamWAll{.copied = {true}}, {schedule, x, x, x, x, copy}), 12 + 4 * 32)
      << "a copy is overwritten unread";
  EXPECT_EQ(bytes_written(AdamWAll{.copied = {true}}, {schedule, x, x, x, x, copy}), 3 * 32 + 16);
  EXPECT_EQ(bytes_read(SgdAll{.copied = {true}}, {schedule, x, x, x, copy}), 12 + 3 * 32);
}

TEST(Traits, PyTorchHasTheOrdinaryOnes) {
  const TensorType image{DType::f32, {1, 3, 8, 8}}, weight{DType::f32, {4, 3, 3, 3}};
  const TensorType a{DType::f32, {4, 4}}, b{DType::f32, {2, 4, 4}};
  const auto name = [](const Op& op, const std::vector<TensorType>& in) {
    return aten_name(op, in);
  };
  EXPECT_EQ(name(MatMul{}, {a, a}), "aten::mm");
  EXPECT_EQ(name(MatMul{}, {b, b}), "aten::bmm");
  EXPECT_EQ(name(Conv2d{}, {image, weight}), "aten::conv2d");
  EXPECT_EQ(name(Conv2d{{}, false, false, Epilogue::relu}, {image, weight}), "") << "two of them";
  EXPECT_EQ(name(Conv2d{{.layout = ImageLayout::nhwc}}, {image, weight}), "")
      << "PyTorch gives the extents of an image with channels first";
  EXPECT_EQ(name(Linear{.bias = true}, {a, a, a}), "aten::linear");
  EXPECT_EQ(name(Linear{.epilogue = Epilogue::gelu}, {a, a}), "");
  EXPECT_EQ(name(Activation{ActivationKind::gelu}, {a}), "aten::gelu");
  EXPECT_EQ(name(ActivationGrad{ActivationKind::sigmoid}, {a, a}), "")
      << "PyTorch's takes the result";
  EXPECT_EQ(name(Arithmetic{ArithmeticKind::sub}, {a, a}), "aten::sub");
  EXPECT_EQ(name(MaxPool2d{}, {image}), "aten::max_pool2d");
  EXPECT_EQ(name(ReduceAll{Reduction::argmax}, {a}), "aten::argmax");
  EXPECT_EQ(name(Rope{}, {b}), "");
}

TEST(Traits, AttentionsGradientLeavesRoom) {
  EXPECT_EQ(footprint_of(AttentionGrad{}), Footprint::few);
  EXPECT_EQ(footprint_of(MatMul{}), Footprint::some);
}

}  // namespace
}  // namespace ridge
