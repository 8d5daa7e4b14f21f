#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ridge {

// What names a run on all machines.
using Uuid = std::array<std::uint8_t, 16>;

Uuid random_uuid();                       // RFC 9562, version 4
std::string to_string(const Uuid& uuid);  // "2f0c6a3e-8d47-4f6b-9a1c-0d5be1f07c11"

// Reads what to_string() wrote, in letters of either case, with the hyphens or without.
std::optional<Uuid> uuid_from(std::string_view text);

// The first and the last uuid that begin with some hexadecimal digits, hyphens aside. None for
// fewer than `least` digits, or anything else.
std::optional<std::pair<Uuid, Uuid>> uuids_with_prefix(std::string_view text,
                                                       std::size_t least = 4);

}  // namespace ridge
