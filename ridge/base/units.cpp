#include "ridge/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

namespace ridge {

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 5> units{"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) value /= 1024, ++unit;
  return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string format_percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string format_megabytes(double bytes, int decimals) {
  return fmt::format("{:.{}f} MB", bytes / 1e6, decimals);
}

std::string format_loss(double loss) {
  return std::isnan(loss) ? "nan" : fmt::format("{:.4f}", loss);
}

std::string format_si(double value) {
  constexpr std::array<std::string_view, 6> units{"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (std::abs(value) >= 1000 && unit + 1 < units.size()) value /= 1000, ++unit;
  return fmt::format("{:.4g} {}", value, units[unit]);
}

std::string format_duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole / 60 % 60);
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", format_count(count), what, count == 1 ? "" : "s");
}

std::string upper_case(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper;
}

}  // namespace ridge
