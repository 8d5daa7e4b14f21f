#pragma once

// The gradient of a norm from its result, on any device: what it is from the operand, but for the
// rounding of the result, even where a weight is zero and the result seems to say nothing.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/ops/op.h"
#include "tests/ops/sample_runner.h"

namespace ridge::testing {

inline void expect_gradients_from_results(Device& device, DType dtype) {
  const TensorType x{DType::f32, {50, 72}}, w{DType::f32, {72}}, y{dtype, {50, 72}};
  const auto run = [&](const Op& op, const std::vector<TensorType>& in,
                       const std::vector<Reals>& values) {
    const std::vector<TensorType> out = infer(op, in);
    const auto bytes = run_kernel(device, op, in, out, values);
    std::vector<Reals> results;
    for (std::size_t o = 0; o < out.size(); ++o) results.push_back(decode(bytes[o], out[o].dtype));
    return results;
  };
  const Reals dy = sample_values({y}, dtype, 0), sum = sample_values({x}, DType::f32, 1);
  Reals weight = sample_values({w}, DType::f32, 2);
  weight[3] = 0.0, weight[17] = -0.0, weight[40] = 1e-20, weight[71] = -1e-3;
  const auto norm = run(RmsNorm{.out = dtype, .invertible = true}, {x, w}, {sum, weight});
  const TensorType rstd{DType::f32, {50}};
  const auto wanted = run(RmsNormGrad{}, {y, x, w, rstd}, {dy, sum, weight, norm[1]});
  const auto actual =
      run(RmsNormGrad{.from_result = true}, {y, y, w, rstd}, {dy, norm[0], weight, norm[1]});
  // xhat is as exact as y; 50 of them are summed for dweight.
  const double part = dtype == DType::bf16 ? 0x1p-8 : 1e-5;
  expect_close(actual[0], wanted[0], {4 * part, part});
  expect_close(actual[1], wanted[1], {10 * part, part});
  EXPECT_GT(std::abs(wanted[1][3]), 20 * part) << "nothing to lose where the weight is zero";
}

}  // namespace ridge::testing
