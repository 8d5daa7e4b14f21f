#pragma once

#include <cstdint>
#include <string>

#include "ridge/base/units.h"

namespace ridge::trace {

// Columns hold nanoseconds; reports, JSON and tables microseconds.
constexpr double us(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

// "1.25 ms" of so many microseconds.
inline std::string time(double us) { return format_duration(us * 1e-6); }

// "12.3 %" of a part of something; "-" where that is nothing.
inline std::string part_of(double part, double all) {
  return all > 0 ? format_percent(part / all) : "-";
}

}  // namespace ridge::trace
