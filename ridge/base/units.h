#pragma once

#include <cstdint>
#include <string>

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

}  // namespace ridge
