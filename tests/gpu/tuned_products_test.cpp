// Every kernel among which the tuner chooses, on a GPU: the vendor's products, our own, and those
// with a gate behind them.

#include "tests/gpu/choose.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Choose;
using testing::Reals;

class TunedProducts : public testing::GpuTest {
 protected:
  template <class T>
  void expect_all_right(const Sample<T>& sample) {
    for (const DType dtype : only_16_bit) expect_all_right(sample, dtype);
  }
  template <class T>
  void expect_all_right(const Sample<T>& sample, DType dtype) {
    testing::expect_all_candidates_right(device(), sample, dtype, {.products = Products::tuned});
  }
};

// Extents that are no multiples of a tile in any direction, of less than one, and of many.
TEST_F(TunedProducts, AreRightInEveryLayout) {
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{8, 8, 8}, {128, 256, 64}, {200, 136, 264}, {1160, 1032, 40}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& result : {std::optional<DType>{}, std::optional(DType::f32)})
          expect_all_right<MatMul>({{.trans_a = ta, .trans_b = tb, .out = result},
                                    {{{DType::f32, ta ? Shape{k, m} : Shape{m, k}}},
                                     {{DType::f32, tb ? Shape{n, k} : Shape{k, n}}}}});
}

// A product with rows of any length, in 16 bits and in f32, where that is added to or not.
std::vector<Sample<MatMul>> products(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a,
                                     bool trans_b) {
  std::vector<Sample<MatMul>> samples;
  for (const auto& [out, accumulate] : {std::pair<std::optional<DType>, bool>{{}, false},
                                        {DType::f32, false},
                                        {DType::f32, true}}) {
    samples.push_back({{.trans_a = trans_a, .trans_b = trans_b, .out = out},
                       {{{DType::f32, trans_a ? Shape{k, m} : Shape{m, k}}},
                        {{DType::f32, trans_b ? Shape{n, k} : Shape{k, n}}}}});
    if (accumulate) samples.back().inputs.push_back({{DType::f32, {m, n}}});
  }
  return samples;
}

// Rows that begin at no multiples of 16 bytes, of one matrix or of all.
TEST_F(TunedProducts, AreRightWhereRowsBeginAnywhere) {
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {200, 137, 264}, {203, 136, 41}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const Sample<MatMul>& sample : products(m, n, k, ta, tb)) expect_all_right(sample);
}

TEST_F(TunedProducts, AreRightWithAGateBehindThem) {
  for (const Sample<LinearSwiGlu>& sample : LinearSwiGlu::samples()) expect_all_right(sample);
  for (const Sample<LinearSwiGluGrad>& sample : LinearSwiGluGrad::samples())
    expect_all_right(sample);
}

TEST_F(TunedProducts, AreRightWithAnEpilogue) {
  for (const Sample<Linear>& sample : Linear::samples())
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) expect_all_right(sample, dtype);
}

// So many tiles that each block of our own kernels goes through several.
TEST_F(TunedProducts, AreRightWithAnEpilogueTileAfterTile) {
  constexpr std::int64_t m = 4500, n = 1032, k = 24, own_tiles = 4;
  for (const bool residual : {false, true}) {
    const Linear op{.bias = true, .residual = residual, .epilogue = Epilogue::gelu};
    const DType dtype = DType::f16;
    std::vector<TensorType> in{{dtype, {m, k}}, {dtype, {n, k}}, {dtype, {n}}};
    if (residual) in.push_back({dtype, {m, n}});
    std::vector<Reals> values;
    for (const TensorType& type : in)
      values.push_back(testing::sample_values({type}, dtype, values.size()));
    const std::vector<TensorType> out = op.infer(in);
    const auto expected = testing::run_reference(op, in, out, values);
    for (std::size_t candidate = 0; candidate < own_tiles; ++candidate) {
      SCOPED_TRACE(fmt::format("candidate {}, residual {}", candidate, residual));
      Choose tuner(candidate);
      const KernelChoice choice{.products = Products::tuned, .tuner = &tuner};
      const auto actual = testing::run_kernel(device(), op, in, out, values, choice);
      testing::expect_close(testing::decode(actual[0], dtype), expected[0],
                            testing::tolerance_of_result(op, out[0], in));
    }
  }
}

// Of results of 16 bits, the exact GELU's rounding but for a sixty-fourth of it, from where it is x
// to where it is all but 0, and far beyond both: of a product by 1.
TEST_F(TunedProducts, RoundGeluAlmostAsTheExactOneIsRounded) {
  constexpr std::int64_t rows = 2048, width = 8;
  for (const auto& [dtype, half_unit, least] :
       {std::tuple{DType::f16, 0x1p-11, 0x1p-25}, {DType::bf16, 0x1p-8, 0x1p-38}}) {
    const std::vector<TensorType> in{{dtype, {rows, width}}, {dtype, {width, width}}};
    std::vector<Reals> values(2);
    for (std::int64_t i = 0; i < rows * width; ++i) {
      const double x = 20.0 * static_cast<double>(i) / (rows * width) - 12;
      values[0].push_back(testing::rounded(i % width == 0 ? 5 * x : x, dtype));
    }
    for (std::int64_t i = 0; i < width * width; ++i) values[1].push_back(i % (width + 1) == 0);
    const Linear op{.epilogue = Epilogue::gelu};
    const std::vector<TensorType> out = op.infer(in);
    const auto expected = testing::run_reference(op, in, out, values);
    Choose tuner(0);
    const KernelChoice choice{.products = Products::tuned, .tuner = &tuner};
    const auto actual = testing::run_kernel(device(), op, in, out, values, choice);
    testing::expect_close(testing::decode(actual[0], dtype), expected[0],
                          {least * (1 + 0x1p-6), half_unit * (1 + 0x1p-6)});
  }
}

}  // namespace
}  // namespace ridge
