#pragma once

#include <cstdint>

namespace ridge {

// What averaging and interpolating do to one dimension of an image: each of `out` results is a
// weighted mean of neighbors among `in` operands. An image is treated along its rows and along its
// columns, independently; and the gradient is the same map transposed. Computed in integers, so
// that it is the same on every device.
template <class Int>
struct BasicAxis {
  enum class Kind : std::uint8_t {
    windows,   // the mean of each window of `kernel` operands, `stride` apart
    adaptive,  // the mean of each of `out` windows that cover the operands as evenly as they can
    linear,    // between the two operands around the result's center
  };

  Kind kind = Kind::adaptive;
  bool count_padding = false;  // of windows: whether the padding is a part of the mean
  Int in = 1, out = 1;
  Int kernel = 1, stride = 1, padding = 0;

  // The same with another integer.
  template <class To>
  constexpr BasicAxis<To> as() const {
    return {.kind = static_cast<typename BasicAxis<To>::Kind>(kind),
            .count_padding = count_padding,
            .in = static_cast<To>(in),
            .out = static_cast<To>(out),
            .kernel = static_cast<To>(kernel),
            .stride = static_cast<To>(stride),
            .padding = static_cast<To>(padding)};
  }
  constexpr bool fits_32_bits() const {
    constexpr Int most = 16384;  // so that products of extents do
    return in <= most && out <= most && kernel <= most && stride <= most;
  }

  struct Range {
    Int begin, end;
  };

  // The operands that result o depends on.
  constexpr Range operands_of(Int o) const {
    if (kind == Kind::windows)
      return {largest(o * stride - padding, 0), least(o * stride - padding + kernel, in)};
    if (kind == Kind::adaptive) return {o * in / out, ceil_div((o + 1) * in, out)};
    const Int first = place(o) / (2 * out);
    return {first, least(first + 2, in)};
  }

  // The results that depend on operand i, possibly with one of weight 0 at an end.
  constexpr Range results_of(Int i) const {
    if (kind == Kind::windows)
      return {ceil_div(largest(i + padding - kernel + 1, 0), stride),
              least((i + padding) / stride + 1, out)};
    if (kind == Kind::adaptive) return {i * out / in, ((i + 1) * out - 1) / in + 1};
    return {i == 0 ? 0 : ceil_div(out * (2 * i - 1), in) / 2,
            least(ceil_div(out * (2 * i + 3), in) / 2, out)};
  }

  // The weight of operand i in result o, which depends on it.
  constexpr float weight(Int o, Int i) const {
    if (kind == Kind::linear) {
      const Int first = place(o) / (2 * out), rest = place(o) - first * 2 * out;
      const float second = static_cast<float>(rest) / static_cast<float>(2 * out);
      if (first + 1 == in) return i == first ? 1.0f : 0.0f;
      return i == first ? 1.0f - second : (i == first + 1 ? second : 0.0f);
    }
    const Range range = operands_of(o);
    Int count = range.end - range.begin;
    if (kind == Kind::windows && count_padding)
      count = least(kernel, in + 2 * padding - o * stride);
    return 1.0f / static_cast<float>(count);
  }

  // How many operands all results depend on.
  constexpr Int terms() const {
    Int sum = 0;
    for (Int o = 0; o < out; ++o) sum += operands_of(o).end - operands_of(o).begin;
    return sum;
  }

 private:
  static constexpr Int largest(Int a, Int b) { return a > b ? a : b; }
  static constexpr Int least(Int a, Int b) { return a < b ? a : b; }
  static constexpr Int ceil_div(Int a, Int b) { return (a + b - 1) / b; }
  // Where the center of result o lies among the operands' centers, in units of 1 / (2 out).
  constexpr Int place(Int o) const { return largest((2 * o + 1) * in - out, 0); }
};

using Axis = BasicAxis<std::int64_t>;

}  // namespace ridge
