// Operators at the sizes that training has, and at those where their GPU kernels change their way:
// many tensors in one launch, long and skewed lists of ids, sums in several parts, tiles that are
// not whole. Skipped where there is no GPU.

#include <cmath>

#include "ridge/gpu/device.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Reals;

class TrainingOnGpu : public testing::GpuTest {
 protected:
  using Bytes = std::vector<std::vector<std::byte>>;

  Bytes check(const Op& op, const std::vector<SampleInput>& inputs) {
    std::vector<TensorType> in;
    std::vector<Reals> values;
    for (const SampleInput& input : inputs) {
      values.push_back(testing::sample_values(input, input.type.dtype, in.size()));
      in.push_back(input.type);
    }
    return check(op, in, values);
  }

  // `longest`: terms of the longest sum, if that is not the same for all elements.
  Bytes check(const Op& op, const std::vector<TensorType>& in, const std::vector<Reals>& values,
              double longest = 0) {
    SCOPED_TRACE(fmt::format("{}: {}", name_of(op),
                             list_of(Types(in).first(std::min<std::size_t>(in.size(), 6)))));
    const std::vector<TensorType> out = infer(op, in);
    const std::vector<Reals> expected = testing::run_reference(op, in, out, values);
    const Bytes actual = testing::run_kernel(device(), op, in, out, values);
    for (std::size_t o = 0; o < out.size(); ++o) {
      SCOPED_TRACE(fmt::format("output {}: {}", o, out[o].to_string()));
      testing::Tolerance tolerance = testing::tolerance_of(out[o], in);
      tolerance.absolute = std::max(tolerance.absolute, 1e-5 * std::sqrt(longest) / 8);
      testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o], tolerance);
    }
    EXPECT_EQ(testing::run_kernel(device(), op, in, out, values), actual) << "at a second launch";
    return actual;
  }
};

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

template <class Each>
std::vector<SampleInput> optimizer_inputs(const std::vector<Shape>& shapes) {
  std::vector<SampleInput> inputs{{{DType::f32, {3}}, 0.1, 0.9}, {{DType::f32, {}}, 0.5, 3.0}};
  for (const Shape& shape : shapes)
    for (std::size_t i = 0; i < 2 + Each::moments; ++i)
      inputs.push_back({{DType::f32, shape}, i < 3 ? -1.0 : 0.01});  // AdamW's last: of squares
  return inputs;
}

// Sizes around the tile of one block, again and again.
std::vector<Shape> many_shapes(std::size_t count) {
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < count; ++i) {
    constexpr std::int64_t sizes[] = {1, 2048, 2047, 300, 2049, 64, 5000, 7};
    shapes.push_back({sizes[i % std::size(sizes)]});
  }
  return shapes;
}

template <class Each>
class OptimizersOnGpu : public TrainingOnGpu {};
using Optimizers = ::testing::Types<AdamW, Sgd>;
TYPED_TEST_SUITE(OptimizersOnGpu, Optimizers);

TYPED_TEST(OptimizersOnGpu, OfManyParametersDoWhatThatOfOneDoes) {
  using Each = TypeParam;
  constexpr std::size_t own = 2 + Each::moments, results = 2 + Each::moments;  // grad is zeroed
  for (const std::size_t count : {1, 40, 150, 1500}) {
    SCOPED_TRACE(count);
    const std::vector<Shape> shapes = many_shapes(count);
    std::vector<SampleInput> inputs = optimizer_inputs<Each>(shapes);
    std::vector<bool> copied;
    for (std::size_t p = 0; p < count; ++p) copied.push_back(p % 3 == 0);
    // In halves, of which the lower ones are aligned to packs or not.
    for (std::size_t p = 0; p < count; ++p)
      if (p % 3 == 1) inputs[2 + own * p].type.dtype = DType::split_f32;
    for (std::size_t p = 0; p < count; ++p)
      if (copied[p]) inputs.push_back({{p % 2 == 0 ? DType::bf16 : DType::f16, shapes[p]}});
    const Each each{.weight_decay = 0.1, .max_norm = 1.0};
    const auto all =
        this->check(UpdateAll<Each>{.each = each, .zero_grad = true, .copied = copied}, inputs);
    for (std::size_t p = 0; p < std::min<std::size_t>(count, 8); ++p) {
      std::vector<TensorType> in;
      std::vector<Reals> values;
      const auto take = [&](std::size_t i) {
        in.push_back({inputs[i].type.dtype == DType::split_f32 ? DType::f32 : inputs[i].type.dtype,
                      inputs[i].type.shape});
        values.push_back(testing::sample_values(inputs[i], DType::f32, i));
      };
      for (std::size_t i = 0; i < own; ++i) take(2 + own * p + i);
      take(0);
      take(1);
      const auto one = this->check(each, in, values);
      for (std::size_t o = 0; o < 1 + Each::moments; ++o) {
        const DType stored = o == 0 ? inputs[2 + own * p].type.dtype : DType::f32;
        EXPECT_EQ(testing::decode(one[o], DType::f32),
                  testing::decode(all[results * p + o], stored))
            << "parameter " << p;
      }
    }
  }
}

TEST_F(TrainingOnGpu, NormOfManyTensors) {
  for (const std::size_t count : {200, 3000}) {
    std::vector<SampleInput> inputs;
    for (const Shape& shape : many_shapes(count)) inputs.push_back({{DType::f32, shape}});
    check(GlobalNorm{}, inputs);
  }
  check(GlobalNorm{}, {{{DType::f32, {3000, 1111}}}, {{DType::f32, {16384}}}});
}

TEST_F(TrainingOnGpu, EmbeddingsOfManyIds) {
  struct Size {
    std::int64_t rows, ids, columns;
    double skew;
  };
  for (const auto& [rows, count, columns, skew] :
       {Size{1000, 8192, 128, 1}, Size{1000, 8192, 1024, 4}, Size{65, 3000, 257, 1},
        Size{1, 2000, 96, 1}, Size{70001, 1111, 40, 1}, Size{513, 20000, 8, 30},
        Size{3001, 8192, 264, 2}, Size{40000, 9000, 72, 3}, Size{2, 8192, 9, 1}})
    for (const DType dtype : dtypes) {
      const TensorType ids{DType::i32, {count}}, table{dtype, {rows, columns}},
          y{dtype, {count, columns}};
      Reals id_values = testing::sample_values({ids, 0.0, 0x1p30}, DType::i32, 1);
      for (double& id : id_values)
        id = std::floor(static_cast<double>(rows) * std::pow(id * 0x1p-30, skew));
      check(Embedding{}, {table, ids}, {testing::sample_values({table}, dtype, 0), id_values});
      check(EmbeddingGrad{.rows = rows}, {y, ids},
            {testing::sample_values({y}, dtype, 0), id_values}, static_cast<double>(count));
    }
}

TEST_F(TrainingOnGpu, SumsOverManyElements) {
  for (const DType dtype : dtypes) {
    const auto sum = [&](const Shape& from, const Shape& to) {
      check(SumTo{to}, {{{dtype, from}}});
    };
    for (const Shape& from : {Shape{5000, 768}, Shape{4099, 333}, Shape{64, 30000}})
      for (const Shape& to : {Shape{from[1]}, Shape{from[0], 1}, Shape{}}) sum(from, to);
    sum({3, 300, 7, 512}, {3, 1, 7, 1});
    sum({5, 400, 2, 264}, {400, 1, 264});
    sum({1000000}, {});
    sum({3, 70000}, {70000});
  }
}

TEST_F(TrainingOnGpu, LayoutsOfWholeBatches) {
  for (const DType dtype : dtypes) {
    const auto move = [&](const Shape& shape, std::array<std::uint8_t, Shape::max_rank> order) {
      check(Permute{order}, {{{dtype, shape}}});
    };
    move({4, 8, 130, 64}, {0, 2, 1, 3});
    move({1000, 1024}, {1, 0});
    move({1001, 515}, {1, 0});
    move({3, 65, 6, 130}, {3, 0, 1, 2});
    for (const HeadLayout& layout :
         {HeadLayout{8, 4, 64, 10000.0f}, HeadLayout{3, 1, 20, 500.0f}}) {
      const TensorType q{dtype, {2, layout.n_heads, 300, layout.head_dim}};
      const TensorType k{dtype, {2, layout.n_kv_heads, 300, layout.head_dim}};
      check(SplitHeads{layout}, {{{dtype, {2, 300, layout.columns()}}}});
      check(MergeHeads{layout}, {{q}, {k}, {k}});
    }
    for (const std::int64_t extent : {128, 133})
      check(CausalMask{.value = -7.0f}, {{{dtype, {3, 2, extent, extent}}}});
    check(Add{}, {{{dtype, {300, 1024}}}, {{dtype, {1024}}}});
    check(Mul{}, {{{dtype, {64, 1, 1024}}}, {{dtype, {30, 1}}}});
  }
}

TEST_F(TrainingOnGpu, PointwiseChains) {
  using Code = Pointwise::Code;
  for (const DType dtype : dtypes)
    for (const Shape& shape : {Shape{700, 512}, Shape{37, 333}}) {
      const SampleInput x{{dtype, shape}, -4.0, 4.0};
      // The last two are not chains, or not in order.
      for (const std::vector<Pointwise::Step>& steps : std::vector<std::vector<Pointwise::Step>>{
               {{Code::silu, 0}, {Code::mul, 3, 1}, {Code::add, 2, 4}},
               {{Code::mul, 0, 1}, {Code::add, 3, 2}},
               {{Code::scale, 0, 0, 0.5f}, {Code::add, 3, 1}, {Code::add, 4, 2}},
               {{Code::add, 1, 2}, {Code::add, 3, 0}},
               {{Code::silu_grad, 0, 1}, {Code::mul, 2, 3}},
               {{Code::add, 0, 1}, {Code::mul, 3, 3}, {Code::add, 2, 4}}})
        check(Pointwise{steps, {{static_cast<std::uint16_t>(2 + steps.size()), dtype}}}, {x, x, x});
      check(Pointwise{{{Code::silu, 0}, {Code::mul, 1, 2}}, {{3, dtype}}}, {x, x});
      check(Pointwise{{{Code::silu_grad, 0, 1}, {Code::mul, 2, 1}}, {{3, dtype}}}, {x, x});
      check(Pointwise{{{Code::add, 0, 1}, {Code::relu, 2}}, {{3, dtype}}}, {x, x});
      check(Pointwise{{{Code::relu_grad, 0, 1}, {Code::add, 3, 2}}, {{4, dtype}}}, {x, x, x});
    }
  Pointwise wide;
  std::vector<SampleInput> many;
  for (std::uint16_t i = 0; i < 33; ++i) many.push_back({{dtypes[i % 3], {9, 1100}}});
  for (std::uint16_t i = 0; i < 32; ++i)
    wide.steps.push_back({Code::add, static_cast<std::uint16_t>(i == 0 ? 0 : 32 + i),
                          static_cast<std::uint16_t>(i + 1)});
  wide.results = {{64}, {40, DType::bf16}, {41, DType::f16}, {20}};
  check(wide, many);
}

}  // namespace
}  // namespace ridge
