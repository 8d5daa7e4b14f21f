#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ridge {

enum class DType : std::uint8_t { f32, bf16, i32 };

std::size_t size_of(DType dtype);       // bytes of one element
std::string_view name_of(DType dtype);  // "f32", "bf16", "i32"
bool is_floating(DType dtype);

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

}  // namespace ridge
