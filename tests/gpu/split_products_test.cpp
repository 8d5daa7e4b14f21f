// Products of f32 by split bf16, on GPUs that have them.

#include <cmath>
#include <limits>

#include "tests/gpu/choose.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"

namespace ridge {
namespace {

using testing::Choose;
using testing::Reals;

class SplitBf16Products : public testing::GpuTest {
 protected:
  struct Run {
    std::vector<TensorType> in, out;
    std::vector<Reals> values;
  };

  static Run operands(const MatMul& op, std::int64_t m, std::int64_t n, std::int64_t k,
                      bool accumulate = false, float low = -1) {
    Sample<MatMul> sample{op,
                          {{{DType::f32, op.trans_a ? Shape{k, m} : Shape{m, k}}, low},
                           {{DType::f32, op.trans_b ? Shape{n, k} : Shape{k, n}}, low}}};
    if (accumulate) sample.inputs.push_back({{DType::f32, {m, n}}});
    Run run;
    for (const SampleInput& input : sample.inputs) run.in.push_back(input.type);
    run.out = op.infer(run.in);
    run.values = testing::operand_values(sample, run.in);
    return run;
  }

  // Skips if there is no such kernel for this GPU.
  void multiply(const MatMul& op, const Run& run, Reals& result) {
    Choose last(std::numeric_limits<std::size_t>::max());
    const KernelChoice choice{.products = Products::tuned, .tuner = &last, .split_bf16 = true};
    const auto once = testing::run_kernel(device(), op, run.in, run.out, run.values, choice);
    if (!last.told.starts_with("split bf16"))
      GTEST_SKIP() << "this GPU has no products in split bf16";
    EXPECT_EQ(testing::run_kernel(device(), op, run.in, run.out, run.values, choice), once)
        << "not the same bits again";
    result = testing::decode(once[0], DType::f32);
  }

  void expect_right(const MatMul& op, const Run& run) {
    SCOPED_TRACE(list_of(run.in));
    Reals actual;
    multiply(op, run, actual);
    if (IsSkipped()) return;
    testing::expect_close(actual, testing::run_reference(op, run.in, run.out, run.values)[0],
                          testing::tolerance_of_result(op, run.out[0], run.in));
  }
};

// Extents that are no multiples of a tile or of 16 bytes, of less than a tile, and of many.
TEST_F(SplitBf16Products, AreRightInEveryLayout) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {8, 8, 8},
                                {77, 33, 45},
                                {128, 256, 64},
                                {200, 136, 264},
                                {1160, 1032, 40}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool accumulate : {false, true}) {
          const MatMul op{.trans_a = ta, .trans_b = tb};
          expect_right(op, operands(op, m, n, k, accumulate));
          if (IsSkipped()) return;
        }
}

// Of few tiles, among which the multiprocessors divide the terms.
TEST_F(SplitBf16Products, AreRightWithDividedTerms) {
  for (const MatMul op : {MatMul{.trans_b = true}, MatMul{.trans_a = true}})
    for (const bool accumulate : {false, true})
      for (const std::int64_t k : {1024, 1000, 520})
        expect_right(op, operands(op, 130, 260, k, accumulate));
}

// Whose components would take more memory than a product sets aside.
TEST_F(SplitBf16Products, AreRightInParts) {
  const MatMul forward{.trans_b = true}, weight_gradient{.trans_a = true};
  expect_right(forward, operands(forward, 22'000, 8, 1024));
  for (const bool accumulate : {false, true})
    expect_right(weight_gradient, operands(weight_gradient, 216, 8, 100'200, accumulate));
}

// Of numbers of one sign, what an addition cuts off would add up: without rounded sums in between,
// results of 4096 terms are 200 units too small.
TEST_F(SplitBf16Products, AreAsExactAsSumsInF32) {
  const MatMul op{.trans_b = true};
  const Run run = operands(op, 64, 128, 4096, false, 0);
  Reals actual;
  multiply(op, run, actual);
  if (IsSkipped()) return;
  const Reals expected = testing::run_reference(op, run.in, run.out, run.values)[0];
  double squares = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double units = (actual[i] / expected[i] - 1) * 0x1p24;
    EXPECT_LT(std::abs(units), 16) << i;
    squares += units * units;
  }
  EXPECT_LT(std::sqrt(squares / static_cast<double>(actual.size())), 4);
}

// Products a[i] b[j], of one term, over all of f32's range.
TEST_F(SplitBf16Products, KeepTheRangeOfF32) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double most = std::numeric_limits<float>::max(), near_one = 1 - 0x1p-24;
  const Reals a{1,       -1,         near_one,   most,     -most,     0x1.fffffep63, 0x1.0101p-60,
                0x1p-90, 0x1.7p-126, 0x1.8p-140, infinity, -infinity, std::nan(""),  0},
      b{1, near_one, -0x1.fffffep-1, 0x1.8p63, 0x1p-64, 3, 0, infinity};
  const MatMul op{.trans_b = true};
  const auto m = static_cast<std::int64_t>(a.size()), n = static_cast<std::int64_t>(b.size());
  const Run run{{{DType::f32, {m, 1}}, {DType::f32, {n, 1}}}, {{DType::f32, {m, n}}}, {a, b}};
  Reals actual;
  multiply(op, run, actual);
  if (IsSkipped()) return;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j) {
      SCOPED_TRACE(fmt::format("{} x {}", a[i], b[j]));
      const double product = a[i] * b[j], result = actual[i * b.size() + j];
      if (std::abs(product) <= most) {
        // Pieces of numbers below 2^-110 are cut off at the least bf16, and so are their products.
        EXPECT_NEAR(result, product, std::abs(product) * 0x1p-22 + 0x1p-133 * (std::abs(b[j]) + 1));
      } else {
        EXPECT_FALSE(std::isfinite(result)) << result;
      }
    }
}

// Without leave, and where products may be rounded to 19 bits anyway, there is no such candidate.
TEST_F(SplitBf16Products, AreNotOfferedUnlessAllowed) {
  const MatMul op{.trans_b = true};
  const Run run = operands(op, 128, 128, 64);
  for (const KernelChoice flags :
       {KernelChoice{.tf32 = true, .split_bf16 = true}, KernelChoice{.tf32 = false}}) {
    Choose last(std::numeric_limits<std::size_t>::max());
    KernelChoice choice = flags;
    choice.products = Products::tuned;
    choice.tuner = &last;
    testing::run_kernel(device(), op, run.in, run.out, run.values, choice);
    EXPECT_EQ(last.told, "");
  }
}

}  // namespace
}  // namespace ridge
