#pragma once

#include <array>
#include <cstdint>

namespace ridge {

// The number of rounds of Philox 4x32-10, and the key of one of them.
inline constexpr int philox_rounds = 10;
struct PhiloxKey {
  std::uint32_t k0, k1;

  constexpr explicit PhiloxKey(std::uint64_t key)
      : k0(static_cast<std::uint32_t>(key)), k1(static_cast<std::uint32_t>(key >> 32)) {}
  constexpr void next() {
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
};

// One round on the four words of a counter.
constexpr void philox_round(PhiloxKey key, std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2,
                            std::uint32_t& c3) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
  const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
  c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key.k0;
  c1 = static_cast<std::uint32_t>(p1);
  c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key.k1;
  c3 = static_cast<std::uint32_t>(p0);
}

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
// four random words that are a pure function of key and counter, so that any element of any tensor
// can be drawn anywhere, in any order, on any device, with the same result.
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                              std::uint64_t counter_high) {
  auto c0 = static_cast<std::uint32_t>(counter_low);
  auto c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high);
  auto c3 = static_cast<std::uint32_t>(counter_high >> 32);
  PhiloxKey round(key);
  for (int r = 0; r < philox_rounds; ++r, round.next()) philox_round(round, c0, c1, c2, c3);
  return {c0, c1, c2, c3};
}

}  // namespace ridge
