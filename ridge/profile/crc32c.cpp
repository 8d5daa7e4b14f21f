#include "ridge/profile/crc32c.h"

#include <array>

namespace ridge {
namespace {

// The check of every single byte. The polynomial is 0x1EDC6F41 with its bits reversed.
constexpr std::array<std::uint32_t, 256> table = [] {
  std::array<std::uint32_t, 256> result{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    result[byte] = crc;
  }
  return result;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

}  // namespace ridge
