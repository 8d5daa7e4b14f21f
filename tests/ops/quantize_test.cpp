// What is special about tensors in 8 bits: their scales, and what cannot be scaled.

#include "ridge/ops/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/cpu/device.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using testing::Reals;
using ::testing::ThrowsMessage;

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(QuantizationScale, IsTheLeastPowerOfTwoThatOverflowsNothing) {
  for (const float largest : {Float8E4M3::max(), Float8E5M2::max()})
    for (const float amax : {1e-20f, 0.03f, 1.0f, 1.75f, std::nextafter(1.75f, 2.0f), 2.0f, 447.0f,
                             448.0f, 449.0f, 57344.0f, 57345.0f, 3e38f}) {
      SCOPED_TRACE(amax);
      const float scale = quantization_scale(amax, largest);
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5f) << scale;
      EXPECT_LE(amax / scale, largest);
      EXPECT_GT(amax / (scale / 2), largest);
    }
}

TEST(QuantizationScale, IsFiniteAndItsInverseToo) {
  for (const float amax : {0.0f, std::numeric_limits<float>::denorm_min(), 1e-38f, 1e-32f})
    EXPECT_EQ(quantization_scale(amax, Float8E5M2::max()), 0x1p-100f) << amax;
  EXPECT_EQ(quantization_scale(infinity, Float8E4M3::max()), infinity);
}

std::vector<Reals> quantized(const Quantize& op, const Reals& x, const Shape& shape) {
  CpuDevice device(2);
  const TensorType in[] = {{DType::f32, shape}};
  const std::vector<TensorType> out = op.infer(in);
  const auto bytes = testing::run_kernel(device, op, in, out, {x});
  std::vector<Reals> results;
  for (std::size_t o = 0; o < out.size(); ++o)
    results.push_back(testing::decode(bytes[o], out[o].dtype));
  return results;
}

TEST(Quantize, KeepsWhatEightBitsCanHold) {
  const Reals x{0.0, -3.5, 0.875, 28.0, 0.4375, -0.015625};
  const auto out = quantized({.transposed = true}, x, {2, 3});
  EXPECT_EQ(out[0], Reals{0x1p-4});
  EXPECT_EQ(out[1], (Reals{0, -56, 14, 448, 7, -0.25}));
  EXPECT_EQ(out[2], (Reals{0, 448, -56, 7, 14, -0.25}));
}

// To f16: whole 11 bits down to 2^-29 of the largest magnitude, which is scaled to between 2^15 and
// what f16 ends with; below, steps of 2^-40 of the power of two above it.
TEST(Quantize, RoundsAsTf32DoesInF16) {
  const double bit = 0x1p-10;  // the last of 11
  for (const double largest : {1.0, 1.5, 1.9999, 3e30, 1e-25}) {
    SCOPED_TRACE(largest);
    const Reals x{largest, -(1 + bit) * 0x1p-14 * largest, (1 + 0.4 * bit) * 0x1p-20 * largest,
                  0x1p-28 * largest, 0x1p-36 * largest};
    const auto out = quantized({.to = DType::f16}, x, {5});
    const double scale = out[0][0];
    const float top = static_cast<float>(largest / scale);
    EXPECT_GT(top, 32752);
    EXPECT_LE(top, 65504);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = static_cast<float>(x[i]);
      const double error = std::abs(out[1][i] * scale - exact);
      const double of_11_bits = std::abs(exact) * bit / 2;
      EXPECT_LE(error, i < 4 ? of_11_bits : std::max(of_11_bits, largest * 0x1p-40)) << i;
    }
  }
}

TEST(Quantize, OfNothingButZerosIsZero) {
  const auto out = quantized({.to = DType::f8e5m2}, Reals(40, 0.0), {4, 10});
  EXPECT_EQ(out[1], Reals(40, 0.0));
  EXPECT_EQ(quantized({.to = DType::f16}, Reals(40, 0.0), {4, 10})[1], Reals(40, 0.0));
}

// So that training that diverged is seen to have.
TEST(Quantize, DoesNotHideWhatIsNotFinite) {
  for (const DType to : {DType::f8e4m3, DType::f8e5m2, DType::f16}) {
    const auto with_nan = quantized({.to = to}, {1.0, std::nan(""), 2.0}, {3});
    EXPECT_TRUE(std::isnan(with_nan[1][1]));
    EXPECT_EQ(with_nan[1][2] * with_nan[0][0], 2.0);
    const auto with_infinity = quantized({.to = to}, {1.0, -infinity, 2.0}, {3});
    EXPECT_TRUE(std::isnan(with_infinity[1][1]));
    EXPECT_EQ(with_infinity[0][0], infinity);
  }
}

TEST(Quantize, RefusesWhatItIsNotFor) {
  const TensorType x[] = {{DType::f32, {4, 4}}}, scalar[] = {{DType::f32, {}}};
  EXPECT_THAT([&] { Quantize{.to = DType::bf16}.infer(x); },
              ThrowsMessage<ShapeError>(HasSubstr("bf16 is neither f16 nor a float of 8 bits")));
  const Quantize half_transposed{.to = DType::f16, .transposed = true};
  EXPECT_THAT([&] { half_transposed.infer(x); },
              ThrowsMessage<ShapeError>(HasSubstr("not transposed")));
  EXPECT_THAT([&] { Quantize{.plain = false}.infer(x); },
              ThrowsMessage<ShapeError>(HasSubstr("neither")));
  EXPECT_THROW(Quantize{}.infer(scalar), ShapeError);
}

TEST(ScaledMatMul, RefusesWhatItIsNotFor) {
  const TensorType scalar{DType::f32, {}};
  const auto infer = [&](const ScaledMatMul& op, const TensorType& a, const TensorType& b) {
    const TensorType in[] = {a, b, scalar, scalar};
    return op.infer(in);
  };
  const Shape s{16, 32};
  EXPECT_EQ(infer({}, {DType::f8e5m2, s}, {DType::f8e4m3, {48, 32}}).front(),
            (TensorType{DType::bf16, {16, 48}}));
  EXPECT_THAT(
      [&] {
        infer({}, {DType::f8e5m2, s}, {DType::f8e5m2, s});
      },
      ThrowsMessage<ShapeError>(HasSubstr("at most one operand may be f8e5m2")));
  EXPECT_THAT(
      [&] {
        infer({}, {DType::bf16, s}, {DType::f8e4m3, s});
      },
      ThrowsMessage<ShapeError>(HasSubstr("does not take bf16")));
  EXPECT_THAT(
      [&] {
        infer({.out = DType::f8e4m3}, {DType::f8e4m3, s}, {DType::f8e4m3, s});
      },
      ThrowsMessage<ShapeError>(HasSubstr("not in f8e4m3")));
  EXPECT_THROW(infer({}, {DType::f8e4m3, s}, {DType::f8e4m3, {32, 16}}), ShapeError);
  EXPECT_THAT(
      [&] {
        infer({.trans_a = true}, {DType::f8e4m3, {32, 16}}, {DType::f8e4m3, s});
      },
      ThrowsMessage<ShapeError>(HasSubstr("summed dimension innermost")));
  const TensorType half{DType::f16, s};
  EXPECT_EQ(infer({.out = DType::f32}, half, half).front(), (TensorType{DType::f32, {16, 16}}));
  EXPECT_THAT([&] { infer({}, half, half); },
              ThrowsMessage<ShapeError>(HasSubstr("is in f32, not in bf16")));
  EXPECT_THROW(infer({.out = DType::f32}, half, {DType::f8e4m3, s}), ShapeError);
}

}  // namespace
}  // namespace ridge
