#include "ridge/base/ranges.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/units.h"

namespace ridge {

void check_range(std::string_view flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw UsageError("--{} is {}; it must be from {} to {}", flag, value, least,
                     format_count(most));
}

void check_real(std::string_view flag, double value, double least, double most) {
  if (!std::isfinite(value) || value < least || value > most)
    throw UsageError("--{} is {}; it must be a number from {} to {}", flag, value, least, most);
}

void check_choice(std::string_view flag, std::string_view value,
                  std::initializer_list<std::string_view> choices) {
  if (std::ranges::find(choices, value) == choices.end())
    throw UsageError("--{} is '{}'; choose one of {}", flag, value, fmt::join(choices, ", "));
}

}  // namespace ridge
