#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

// UsageError, "--steps is 0; it must be from 1 to 1,000", for a value of `flag` beyond its limits.
void check_range(std::string_view flag, std::int64_t value, std::int64_t least, std::int64_t most);

}  // namespace ridge
