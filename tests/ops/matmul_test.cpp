// Products of integers small enough that every sum is exact in f32, and every result exact in the
// result's dtype: the kernel has no rounding to hide behind, so the numbers must be equal.

#include "ridge/ops/matmul.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

struct Extents {
  std::int64_t batch, m, n, k;
};

void expect_exact(const MatMul& op, Extents e, DType dtype, double bound, bool adds = false) {
  const SampleInput a{{dtype, op.trans_a ? Shape{e.batch, e.k, e.m} : Shape{e.batch, e.m, e.k}}};
  const SampleInput b{{dtype, op.trans_b ? Shape{e.batch, e.n, e.k} : Shape{e.batch, e.k, e.n}}};
  std::vector<TensorType> in{a.type, b.type};
  const std::vector<TensorType> out = op.infer(in);
  SCOPED_TRACE(fmt::format("{}{} {}{}", in[0].to_string(), op.trans_a ? "^T" : "",
                           in[1].to_string(), op.trans_b ? "^T" : ""));
  std::vector<testing::Reals> values{
      testing::sample_values({in[0], -bound, bound + 1}, DType::i32, 0),
      testing::sample_values({in[1], -bound, bound + 1}, DType::i32, 1)};
  if (adds) {
    in.push_back(out[0]);
    values.push_back(testing::sample_values({out[0], -1000, 1000}, DType::i32, 2));
  }
  const auto expected = testing::run_reference(op, in, out, values);
  CpuDevice device(2);
  const auto actual = testing::run_kernel(device, op, in, out, values);
  testing::expect_close(testing::decode(actual[0], out[0].dtype), expected[0], {0.0, 0.0});
}

void expect_exact_in_all_layouts(Extents extents, DType dtype, double bound) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      expect_exact({.trans_a = trans_a, .trans_b = trans_b}, extents, dtype, bound);
}

// |sum| <= 300 * 8 * 8, far below 2^24.
TEST(MatMulOfIntegers, IsExactInF32) {
  for (const Extents& extents :
       {Extents{1, 1, 1, 1}, Extents{2, 31, 17, 13}, Extents{1, 256, 512, 64},
        Extents{1, 301, 275, 300}, Extents{3, 65, 130, 129}})
    expect_exact_in_all_layouts(extents, DType::f32, 8);
}

// |sum| <= 256, and bf16 holds the integers up to 256.
TEST(MatMulOfIntegers, IsExactInBf16) {
  for (const Extents& extents :
       {Extents{1, 1, 1, 1}, Extents{2, 31, 17, 13}, Extents{1, 256, 512, 64},
        Extents{1, 301, 275, 256}, Extents{3, 65, 130, 129}})
    expect_exact_in_all_layouts(extents, DType::bf16, 1);
}

// Beyond 256: what bf16 would have rounded.
TEST(MatMulOfIntegers, IsExactInF32OfBf16) {
  for (const Extents& extents :
       {Extents{1, 1, 1, 1}, Extents{2, 31, 17, 13}, Extents{1, 256, 512, 64},
        Extents{1, 301, 275, 1027}, Extents{3, 65, 130, 129}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        expect_exact({.trans_a = trans_a, .trans_b = trans_b, .out = DType::f32}, extents,
                     DType::bf16, 8);
}

// However the sum over k is cut, the first part is added to what was there.
TEST(MatMulOfIntegers, IsExactWhereItIsAddedToASum) {
  for (const Extents& extents :
       {Extents{1, 1, 1, 1}, Extents{2, 31, 17, 13}, Extents{1, 256, 512, 64},
        Extents{1, 301, 275, 1027}, Extents{3, 65, 130, 129}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true})
          expect_exact({.trans_a = trans_a, .trans_b = trans_b, .out = DType::f32}, extents, dtype,
                       8, true);
}

TEST(MatMul, AddsOnlyToF32) {
  const TensorType a{DType::bf16, {3, 5}}, b{DType::bf16, {5, 7}}, c{DType::bf16, {3, 7}};
  EXPECT_THROW(MatMul{}.infer(std::vector{a, b, c}), ShapeError);
  const TensorType sum{DType::f32, {3, 7}}, other{DType::f32, {7, 3}};
  EXPECT_THROW(MatMul{}.infer(std::vector{a, b, sum}), ShapeError) << "a b is rounded to bf16";
  const MatMul unrounded{.out = DType::f32};
  EXPECT_EQ(unrounded.infer(std::vector{a, b, sum}), std::vector{sum});
  EXPECT_THROW(unrounded.infer(std::vector{a, b, other}), ShapeError);
}

}  // namespace
}  // namespace ridge
