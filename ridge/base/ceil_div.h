#pragma once

#include <cstdint>

namespace ridge {

// a / b rounded up, for a of at least 0 and b above 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace ridge
