#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

// 64-bit FNV-1a; of a text that goes on, with what came out of its beginning.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xCBF29CE484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace ridge
