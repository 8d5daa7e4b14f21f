#include "ridge/base/ranges.h"

#include "ridge/base/error.h"
#include "ridge/base/units.h"

namespace ridge {

void check_range(std::string_view flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw UsageError("--{} is {}; it must be from {} to {}", flag, value, least,
                     format_count(most));
}

}  // namespace ridge
