#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

// Seconds since 1970, UTC.
struct UtcSpan {
  std::int64_t begin = 0, end = 0;  // its first second, and the one after its last
};

// The span that a time names as a person types it: a year, a month, a day, or a time of a day, from
// "2026" to "2026-01-31T12:00:00Z"; a blank may stand for the T, and the Z is optional. None for
// anything else.
std::optional<UtcSpan> utc_from(std::string_view text);

std::string utc_text(std::int64_t seconds);  // "2026-01-31T12:00:00Z"

}  // namespace ridge
