#include "ridge/device/counted_units.h"

#include <cstdlib>
#include <string_view>

namespace ridge {

bool counts_all_units() {
  const char* const wanted = std::getenv("RIDGE_GPU_COUNTERS");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

}  // namespace ridge
