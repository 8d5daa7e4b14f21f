#pragma once

#include <bit>
#include <type_traits>

#include "ridge/ops/operator.h"

namespace ridge {

// What a tensor whose largest magnitude is `amax` is divided by before it is converted to a narrow
// float whose largest number is `largest`: the least power of two that keeps it from overflowing,
// and at least 2^-100. By a power of two, because dividing by it rounds nothing and, of floats,
// costs no precision. Infinity for infinity.
constexpr float quantization_scale(float amax, float largest) {
  constexpr std::uint32_t mantissa = 0x007FFFFFu, infinity = 0x7F800000u;
  const auto a = std::bit_cast<std::uint32_t>(amax), l = std::bit_cast<std::uint32_t>(largest);
  if (a >= infinity) return std::bit_cast<float>(infinity);
  const int exponent = static_cast<int>(a >> 23) - static_cast<int>(l >> 23) +
                       static_cast<int>((a & mantissa) > (l & mantissa));
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + (exponent < -100 ? -100 : exponent))
                              << 23);
}

// Whether Quantize converts to it: a float of 8 bits, or f16. The latter rounds as tf32 does, to 11
// significant bits, whatever is above 2^-29 of the tensor's largest magnitude, and what is smaller
// to within 2^-40 of that.
inline bool is_quantized(DType dtype) { return is_float8(dtype) || dtype == DType::f16; }

// A tensor in few bits with one scale for all of it, made from its own largest magnitude: x is
// about q * scale, where scale is quantization_scale(max |x|) and q = x / scale, rounded to `to`.
// Takes x[.., C]; gives scale, an f32 scalar, then with `plain` q[.., C] and with `transposed`,
// which products want of 8 bits alone, q[C, R], where R is the number of x's rows. What is infinite
// or NaN in x makes q NaN.
struct Quantize {
  static constexpr std::string_view name = "quantize";

  DType to = DType::f8e4m3;               // is_quantized()
  bool plain = true, transposed = false;  // at least one

  RIDGE_OPERATOR(Quantize);

  // Where among the outputs they are.
  std::size_t plain_output() const { return 1; }
  std::size_t transposed_output() const { return plain ? 2 : 1; }
};

// What Quantize makes of SwiGlu's result or gradient, without that being stored in between. Takes
// (packed[.., 2 I]), gate and up side by side, and quantizes y[.., I]; or with `gradient` takes
// (dy[.., I], packed[.., 2 I]) and quantizes dpacked[.., 2 I]: see ops/swiglu.h. Gives what
// Quantize gives; y and dpacked are not rounded before. A gradient in f16 may take y's scale, an
// f32 scalar, as a third operand: then its last output is y[.., I] in f16 once more, y / scale.
struct QuantizeSwiGlu {
  static constexpr std::string_view name = "quantize_swiglu";

  Quantize into;
  bool gradient = false;

  // Which operand is which; what is not there is past the end.
  struct Operands {
    std::size_t dy, packed, scale, count;
  };
  constexpr Operands operands(std::size_t number) const {
    if (!gradient) return {1, 0, 1, 1};
    return {0, 1, 2, number == 3 ? 3u : 2u};
  }

  RIDGE_OPERATOR(QuantizeSwiGlu);
  int roundings() const { return 2; }  // what is quantized is computed first

  TensorType quantized(Types in) const;  // y's type, or dpacked's
};

// Calls function.template operator()<Q>() for the element type that Quantize converts to.
template <class F>
auto dispatch_quantized(DType dtype, const F& function) {
  if (dtype == DType::f16) return function.template operator()<Float16>();
  if (dtype == DType::f8e4m3) return function.template operator()<Float8E4M3>();
  return function.template operator()<Float8E5M2>();
}

// Its largest number.
template <class Q>
constexpr float largest_of() {
  if constexpr (std::is_same_v<Q, Float16>)
    return 65504.0f;
  else
    return Q::max();
}

}  // namespace ridge
