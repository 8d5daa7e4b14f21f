#include "ridge/device/other_ranks.h"

#include "ridge/base/error.h"

namespace ridge {

void refuse_ranks(std::string_view name, std::int64_t ranks, int there) {
  throw UsageError("{} over {} ranks on a device that is one of {}", name, ranks, there);
}

}  // namespace ridge
