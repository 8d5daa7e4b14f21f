#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ridge {

// split_f32 are tensors of f32 numbers that are stored in halves: all upper ones, as bf16, and
// after them all lower ones (SplitFloat). What is stored so can be read as bf16 without being
// converted.
enum class DType : std::uint8_t { f32, bf16, f16, f8e4m3, f8e5m2, i32, s8, split_f32 };

std::size_t size_of(DType dtype);  // bytes of one element
// "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i32", "s8", "split_f32"
std::string_view name_of(DType dtype);
bool is_floating(DType dtype);  // elements are floats: not of split_f32
// Whether a dtype is bf16 or f16, in which training computes beside f32.
bool is_16_bit(DType dtype);
bool is_float8(DType dtype);

// A 16-bit brain float: the upper half of an IEEE single. Conversion rounds to nearest even.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    // NaN keeps its sign and stays quiet: rounding its payload up could make it infinite.
    const std::uint32_t rounded = word + 0x7FFFu + ((word >> 16) & 1u);
    const std::uint32_t quiet = word | 0x00400000u;
    word = (word & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded;
    bits = static_cast<std::uint16_t>(word >> 16);
  }
  explicit operator float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

// A 16-bit IEEE half: 11 bits of precision from 2^-14 to 65504, in steps of 2^-24 below. Conversion
// rounds to nearest even: to infinity from 65520 on, to 0 up to 2^-25.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t magnitude = word & 0x7FFFFFFFu;
    bits = static_cast<std::uint16_t>((word >> 16 & 0x8000u) | magnitude_bits(magnitude));
  }
  explicit operator float() const {
    const std::uint32_t magnitude = bits & 0x7FFFu, sign = (bits & 0x8000u) << 16;
    if (magnitude < 0x0400u) {  // 0 and subnormals
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return sign ? -value : value;
    }
    const std::uint32_t rebias = magnitude < 0x7C00u ? 112u << 23 : 224u << 23;
    return __builtin_bit_cast(float, sign | ((magnitude << 13) + rebias));
  }

 private:
  // Returns the bits of the half nearest to a single's magnitude, given as its bits.
  static std::uint32_t magnitude_bits(std::uint32_t single) {
    if (single > 0x7F800000u) return 0x7E00u | (single >> 13 & 0x3FFu);  // NaN, quiet
    if (single >= 0x477FF000u) return 0x7C00u;
    if (single >= 0x38800000u) return (single + 0xFFFu + (single >> 13 & 1u) - (112u << 23)) >> 13;
    // The last place of 0.5 + x is 2^-24: the sum is rounded where a subnormal half is.
    const float shifted = __builtin_bit_cast(float, single) + 0.5f;
    return __builtin_bit_cast(std::uint32_t, shifted) - 0x3F000000u;
  }
};

// The floats of 8 bits of the OCP 8-bit floating point specification (Micikevicius et al., 2023).
// Conversion rounds to nearest even and saturates: what is larger than every finite number,
// infinity too, becomes the largest of them. NaN stays NaN and keeps its sign.
template <int mantissa_bits, int bias, std::uint8_t largest>
struct Float8 {
  std::uint8_t bits = 0;

  Float8() = default;
  constexpr explicit Float8(float value) {
    const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t magnitude = word & 0x7FFFFFFFu;
    std::uint32_t narrow = 0;
    if (magnitude > 0x7F800000u) {
      narrow = 0x7F;
    } else if (magnitude < (128u - bias) << 23) {
      // Denormal here: a multiple of 2^(1 - bias - mantissa_bits), which is the distance between
      // neighbors where this sum lies.
      constexpr std::uint32_t grid = (151u - bias - mantissa_bits) << 23;
      const float sum = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, grid);
      narrow = __builtin_bit_cast(std::uint32_t, sum) - grid;
    } else {
      const std::uint32_t odd = magnitude >> dropped & 1u;
      const std::uint32_t rounded = (magnitude + (1u << (dropped - 1)) - 1u + odd) >> dropped;
      narrow = rounded - ((127u - bias) << mantissa_bits);
      if (narrow > largest) narrow = largest;
    }
    bits = static_cast<std::uint8_t>(narrow | (word >> 24 & 0x80u));
  }
  constexpr explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
    const std::uint32_t magnitude = bits & 0x7Fu;
    // Beyond the largest number: infinity, where the format has one, and then NaN.
    if (magnitude > largest) {
      const std::uint32_t special = has_infinity && magnitude == largest + 1u ? 0u : 0x00400000u;
      return __builtin_bit_cast(float, sign | 0x7F800000u | special);
    }
    constexpr float rescale = __builtin_bit_cast(float, (254u - bias) << 23);
    return __builtin_bit_cast(float, sign | magnitude << dropped) * rescale;
  }
  static constexpr float max() {
    Float8 most;
    most.bits = largest;
    return static_cast<float>(most);
  }

 private:
  static constexpr int dropped = 23 - mantissa_bits;
  static constexpr bool has_infinity = largest < 0x7Eu;
};

using Float8E4M3 = Float8<3, 7, 0x7E>;   // up to 448, without infinities
using Float8E5M2 = Float8<2, 15, 0x7B>;  // up to 57344, with all that IEEE floats have

// An integer of 8 bits that stands for a real number. Conversion rounds to nearest even and
// saturates at -127 and 127, so that the range is symmetric; NaN becomes -127.
struct Int8 {
  std::int8_t bits = 0;

  Int8() = default;
  constexpr explicit Int8(float value) {
    const float above = value > -127.0f ? value : -127.0f;
    // Where this sum lies, neighbors are 1 apart, and its last byte is that of the integer.
    const float sum = (above < 127.0f ? above : 127.0f) + 12582912.0f;
    bits = static_cast<std::int8_t>(__builtin_bit_cast(std::uint32_t, sum));
  }
  constexpr explicit operator float() const { return bits; }
};

// An f32 number in two halves of 16 bits, without loss. The upper one is the bf16 that it rounds
// to, halfway cases away from zero; the lower one are its last 16 bits, the first of which tells
// whether it was rounded up: bits = (upper - (lower >= 0x8000)) * 0x10000 + lower. That holds where
// rounding gives infinity, too. A NaN, which rounding could make infinite or 0, keeps its sign and
// becomes quiet.
struct SplitFloat {
  std::uint16_t upper = 0, lower = 0;

  constexpr SplitFloat(std::uint16_t high, std::uint16_t low) : upper(high), lower(low) {}
  constexpr explicit SplitFloat(float value) {
    std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    if ((word & 0x7FFFFFFFu) > 0x7F800000u) word = (word | 0x00400000u) & 0xFFFF7FFFu;
    upper = static_cast<std::uint16_t>((word + 0x8000u) >> 16);
    lower = static_cast<std::uint16_t>(word);
  }
  constexpr explicit operator float() const {
    const std::uint32_t above = upper - (lower >> 15 & 1u);
    return __builtin_bit_cast(float, above << 16 | lower);
  }
  bool operator==(const SplitFloat&) const = default;
};

// Many floats as halves, and back.
void split_floats(std::span<const float> from, std::uint16_t* upper, std::uint16_t* lower);
void join_floats(const std::uint16_t* upper, const std::uint16_t* lower, std::span<float> to);

// Many floats as elements of a floating dtype or s8, rounded to it, or as a whole tensor of
// split_f32, and back.
void store_floats(std::span<const float> from, DType dtype, void* to);
void load_floats(const void* from, DType dtype, std::span<float> to);

}  // namespace ridge
