#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace ridge {

// UsageError, "--steps is 0; it must be from 1 to 1,000", for a value of `flag` beyond its limits.
void check_range(std::string_view flag, std::int64_t value, std::int64_t least, std::int64_t most);

// The same of a real number, which must be finite too.
void check_real(std::string_view flag, double value, double least, double most);

// UsageError, "--mode is 'x'; choose one of a, b", for a value that is none of `choices`.
void check_choice(std::string_view flag, std::string_view value,
                  std::initializer_list<std::string_view> choices);

}  // namespace ridge
