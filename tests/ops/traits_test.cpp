// The facts that operators state about themselves (ridge/ops/operator.h), held to what they
// compute.

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/ops/cases.h"
#include "tests/ops/every_operator.h"

namespace ridge {
namespace {

using testing::operand_types;
using testing::operand_values;
using testing::OperatorSample;
using testing::Reals;
using testing::run_reference;

class EveryOperatorsTraits : public ::testing::TestWithParam<testing::EveryOperator> {
 protected:
  // Calls check(sample, operand types) for every sample in every dtype.
  void for_each_case(const std::function<void(const OperatorSample&, Types)>& check) const {
    const std::vector<OperatorSample> samples = GetParam().samples();
    testing::for_each_case(
        GetParam().name, samples.size(), GetParam().dtypes,
        [&](std::size_t s, DType dtype) { return types_of(samples[s], dtype); },
        [&](std::size_t s, Types types) { check(samples[s], types); });
  }
  static std::vector<TensorType> types_of(const OperatorSample& sample, DType dtype = DType::f32) {
    return operand_types(sample.op, sample.inputs, dtype);
  }
};

INSTANTIATE_TEST_SUITE_P(All, EveryOperatorsTraits, ::testing::ValuesIn(testing::every_operator()),
                         testing::operator_name);

// What multiplies matrices says so, whatever else it does: its FLOPs are then held against the rate
// of products. What only renames has no work at all.
TEST_P(EveryOperatorsTraits, WorkIsWhatItsCostCounts) {
  for_each_case([](const OperatorSample& sample, Types in) {
    const Op& op = sample.op;
    const Cost work = cost(op, in, infer(op, in));
    const bool multiplies = is_product(op) || work_of(op) == WorkKind::attention;
    EXPECT_EQ(work.macs > 0, multiplies);
    if (only_renames(op)) {
      EXPECT_EQ(work, Cost{});
      EXPECT_TRUE(aliased_input(op, 0, in).has_value());
    }
  });
}

TEST_P(EveryOperatorsTraits, NamesOfOperandsAreAsManyAsOperands) {
  for (const OperatorSample& sample : GetParam().samples()) {
    const std::size_t given = sample.inputs.size();
    EXPECT_EQ(GetParam().named_operands(sample.op, given).value_or(given), given);
  }
}

// The same elements in reversed order give the same results in reversed order.
TEST_P(EveryOperatorsTraits, ElementwiseMeansPlaceByPlace) {
  if (GetParam().elementwise) {
    for (const OperatorSample& sample : GetParam().samples()) {
      const Op& op = sample.op;
      const std::vector<TensorType> in = types_of(sample), out = infer(op, in);
      const bool alike =
          std::ranges::all_of(in, [&](const TensorType& x) { return x.shape == out[0].shape; });
      if (!alike) continue;  // one that broadcasts
      std::vector<Reals> values = operand_values(sample.inputs, in);
      std::vector<Reals> expected = run_reference(op, in, out, values);
      for (Reals& operand : values) std::ranges::reverse(operand);
      for (Reals& result : expected) std::ranges::reverse(result);
      EXPECT_EQ(run_reference(op, in, out, values), expected);
    }
  } else {
    EXPECT_FALSE(is_elementwise(GetParam().samples()[0].op));
  }
}

// A step computes what the operator does, from as many FLOPs. A last operand that no step reads
// brings the program to the shape of the result.
TEST_P(EveryOperatorsTraits, AsAStepItComputesTheSame) {
  for (const OperatorSample& sample : GetParam().samples()) {
    const Op& op = sample.op;
    const std::vector<TensorType> in = types_of(sample), out = infer(op, in);
    auto step = as_step(op, in);
    if (!step) continue;
    ASSERT_EQ(operand_count(step->code), static_cast<int>(in.size()));
    step->b = static_cast<std::uint16_t>(in.size() - 1);
    const auto result = static_cast<std::uint16_t>(in.size() + 1);
    const Op chain(Pointwise{.steps = {*step}, .results = {{result}}});
    std::vector<TensorType> with_shape = in;
    with_shape.push_back(out[0]);
    std::vector<Reals> values = operand_values(sample.inputs, in);
    const std::vector<Reals> expected = run_reference(op, in, out, values);
    values.emplace_back(static_cast<std::size_t>(out[0].numel()));
    const std::vector<Reals> computed = run_reference(chain, with_shape, out, values);
    for (std::size_t i = 0; i < expected[0].size(); ++i)
      ASSERT_NEAR(computed[0][i], expected[0][i], 1e-6 * std::abs(expected[0][i])) << i;
    if (is_elementwise(op)) {
      EXPECT_EQ(cost(chain, with_shape, out).flops, cost(op, in, out).flops);
    }
  }
}

TEST_P(EveryOperatorsTraits, AsAnEpilogueItComputesTheSame) {
  for (const OperatorSample& sample : GetParam().samples()) {
    const Op& op = sample.op;
    const ElementFunction& f = element_function(as_epilogue(op));
    if (as_epilogue(op) == Epilogue::none) continue;
    const std::vector<TensorType> in = types_of(sample), out = infer(op, in);
    const std::vector<Reals> x = operand_values(sample.inputs, in);
    const std::vector<Reals> y = run_reference(op, in, out, x);
    for (std::size_t i = 0; i < y[0].size(); ++i) ASSERT_DOUBLE_EQ(f.value(x[0][i]), y[0][i]);
    EXPECT_EQ(f.flops * out[0].numel(), cost(op, in, out).flops);
  }
}

// Other numbers in the last row of the operands that it reads by row change the last row alone.
TEST_P(EveryOperatorsTraits, RowsNeedNoOthers) {
  for (const OperatorSample& sample : GetParam().samples()) {
    const Op& op = sample.op;
    const std::vector<TensorType> in = types_of(sample), out = infer(op, in);
    const std::vector<std::size_t> by_row = row_operands(op, in, out);
    if (by_row.empty() || out[0].shape.rank() == 0 || out[0].shape.rows() < 2) continue;
    const std::int64_t rows = out[0].shape.rows();
    std::vector<Reals> values = operand_values(sample.inputs, in);
    const std::vector<Reals> before = run_reference(op, in, out, values);
    for (const std::size_t i : by_row) {
      ASSERT_EQ(in[i].shape.rows(), rows);
      const auto columns = static_cast<std::size_t>(in[i].numel() / rows);
      for (std::size_t c = values[i].size() - columns; c < values[i].size(); ++c)
        values[i][c] = values[i][c] / 2;
    }
    const std::vector<Reals> after = run_reference(op, in, out, values);
    const auto untouched = static_cast<std::ptrdiff_t>((rows - 1) * (out[0].numel() / rows));
    EXPECT_TRUE(std::equal(before[0].begin(), before[0].begin() + untouched, after[0].begin()));
  }
}

// With the dimensions in reversed order, and `dim` with them, it computes the same.
TEST_P(EveryOperatorsTraits, AlongADimensionTheOthersMayBeInAnyOrder) {
  const auto reversed = [](const TensorType& type) {
    const auto dims = type.shape.dims();
    return TensorType{type.dtype, Shape(std::vector(dims.rbegin(), dims.rend()))};
  };
  const auto transposed = [](const TensorType& type, const Reals& x) {
    const auto rank = static_cast<int>(type.shape.rank());
    Reals y(x.size());
    for (std::int64_t i = 0; i < type.numel(); ++i) {
      std::int64_t rest = i, at = 0, stride = 1;
      std::vector<std::int64_t> index(static_cast<std::size_t>(rank));
      for (int d = rank - 1; d >= 0; rest /= type.shape[d], --d)
        index[static_cast<std::size_t>(d)] = rest % type.shape[d];
      for (int d = 0; d < rank; stride *= type.shape[d], ++d)
        at += index[static_cast<std::size_t>(d)] * stride;
      y[static_cast<std::size_t>(at)] = x[static_cast<std::size_t>(i)];
    }
    return y;
  };
  for (const OperatorSample& sample : GetParam().samples()) {
    Op op(sample.op), turned = op;
    std::uint32_t* const dim = dimension_of(turned);
    EXPECT_EQ(dim != nullptr, GetParam().along_dimension);
    if (!dim) return;
    std::vector<TensorType> in = types_of(sample), out = infer(op, in);
    std::vector<Reals> values = operand_values(sample.inputs, in);
    const Reals expected = transposed(out[0], run_reference(op, in, out, values)[0]);
    *dim = static_cast<std::uint32_t>(out[0].shape.rank()) - 1 - *dim;
    for (std::size_t i = 0; i < in.size(); ++i) values[i] = transposed(in[i], values[i]);
    for (TensorType& type : in) type = reversed(type);
    EXPECT_EQ(run_reference(turned, in, infer(turned, in), values)[0], expected);
  }
}

// Samples fill integer operands with what the operator says that they may hold.
TEST_P(EveryOperatorsTraits, IdsAreInTheirRange) {
  for (const OperatorSample& sample : GetParam().samples()) {
    const std::vector<TensorType> in = types_of(sample);
    for (const SampleInput& input : sample.inputs)
      if (input.type.dtype == DType::i32 && GetParam().takes_ids) {
        EXPECT_EQ(input.high, static_cast<double>(id_range(sample.op, in)));
      }
  }
}

TEST_P(EveryOperatorsTraits, ImagesAreThoseOfTheLayout) {
  Op op = GetParam().samples()[0].op;
  const bool changes = to_channels_last(op);
  EXPECT_TRUE(changes || !to_channels_last(op)) << "a second time";
  if (GetParam().on_images) {
    EXPECT_EQ(GetParam().layout(op), ImageLayout::nhwc);
  } else {
    EXPECT_FALSE(changes);
  }
}

TEST_P(EveryOperatorsTraits, NamesInPyTorchAreWhole) {
  for_each_case([](const OperatorSample& sample, Types in) {
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

TEST(Traits, ConversionsAreThoseThatKernelsWant) {
  EXPECT_TRUE(is_conversion(Cast{.to = DType::bf16}));
  EXPECT_TRUE(is_conversion(Permute{.order = {0, 2, 3, 1}}));
  EXPECT_FALSE(is_conversion(Permute{.order = {1, 0}}));
  EXPECT_FALSE(is_conversion(Scale{.factor = 2}));
}

TEST(Traits, LightAreGatesAndAttention) {
  for (const Op& op : {Op(Silu{}), Op(Mul{}), Op(SwiGlu{}), Op(Attention{})})
    EXPECT_TRUE(is_light(op)) << name_of(op);
  for (const Op& op : {Op(MatMul{}), Op(Add{}), Op(RmsNorm{})})
    EXPECT_FALSE(is_light(op)) << name_of(op);
}

TEST(Traits, AttentionsGradientLeavesRoom) {
  EXPECT_EQ(footprint_of(AttentionGrad{}), Footprint::few);
  EXPECT_EQ(footprint_of(MatMul{}), Footprint::some);
}

}  // namespace
}  // namespace ridge
