#pragma once

// Networks in integers of 8 bits: a tensor x stands for q * scale, with q from -127 to 127. The
// pass of passes/int8.h puts these operators into a network.

#include "ridge/ops/conv.h"
#include "ridge/ops/epilogue.h"
#include "ridge/ops/operator.h"

namespace ridge {

// What a tensor whose largest magnitude is `amax` is divided by before it is rounded to s8.
constexpr float int8_scale(float amax) { return amax > 0 ? amax / 127.0f : 1.0f; }

// q = x / scale, rounded to nearest even and cut off at -127 and 127.
struct Int8Quantize {
  static constexpr std::string_view name = "int8_quantize";
  static constexpr bool elementwise = true;

  float scale = 1.0f;

  RIDGE_OPERATOR(Int8Quantize);
};

// A weight in s8 with a scale for each of its kernels: takes w[O, ..]; gives q of its shape and
// scale, f32[O], with scale[o] = int8_scale(max |w[o, ..]|) and q = w / scale, rounded as above.
struct Int8Weights {
  static constexpr std::string_view name = "int8_weights";

  RIDGE_OPERATOR(Int8Weights);
};

// A convolution of integers, or, of images of one row of pixels and kernels of one, a linear layer.
// Takes x, s8[N, H, W, C], weight, s8[O, R, S, C / G], weight_scale and bias, f32[O], and, if
// `residual`, a tensor of the result's type; channels last only. With sum[n, i, j, o] the exact
// 32-bit convolution of x and weight it gives, computed in f32,
//   y = epilogue(x_scale weight_scale[o] sum + bias[o] + residual_scale residual)
// in a floating dtype, or of s8 y / y_scale, rounded as above. residual_scale is 1 unless the
// residual is s8.
struct Int8Conv2d : ConvGeometry {
  static constexpr std::string_view name = "int8_conv2d";
  static constexpr DTypes dtypes = f32_only;  // of scales and biases
  static constexpr WorkKind work = WorkKind::convolution;

  DType out = DType::s8;
  bool residual = false;
  Epilogue epilogue = Epilogue::none;
  float x_scale = 1.0f, residual_scale = 1.0f, y_scale = 1.0f;

  // Which operand is which; a residual that is not there is past the end.
  struct Operands {
    std::size_t x = 0, weight = 1, weight_scale = 2, bias = 3, residual = 4, count = 5;
  };
  constexpr Operands operands() const { return {.count = 4u + residual}; }

  RIDGE_OPERATOR(Int8Conv2d);
};

}  // namespace ridge
