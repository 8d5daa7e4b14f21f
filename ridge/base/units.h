#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

std::string format_bytes(std::uint64_t bytes);                   // "1.50 GiB", "512 B"
std::string format_count(std::int64_t count);                    // "2,873,600"
std::string counted(std::int64_t count, std::string_view what);  // "1 run", "2,000 runs"
std::string format_si(double value);                             // "16.1 G"; append the unit
std::string format_duration(double seconds);                     // "1.25 ms", "3 m 12 s"
std::string format_percent(double part);                         // "12.3 %" of 0.123
// "12.3 MB", of a million bytes each.
std::string format_megabytes(double bytes, int decimals = 1);
std::string format_loss(double loss);  // "6.9786"; "nan", whose sign says nothing

std::string upper_case(std::string_view text);  // of ASCII

inline constexpr double nano = 1e-9, mega = 1e6;
template <class Number>
double real(Number value) {
  return static_cast<double>(value);
}
inline double over(double a, double b) { return b > 0 ? a / b : 0; }  // 0 where nothing is known

}  // namespace ridge
