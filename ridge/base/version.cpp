#include "ridge/base/version.h"

#include "ridge/base/commit.h"

namespace ridge {

std::string_view version() { return RIDGE_VERSION; }
std::string_view commit() { return RIDGE_COMMIT; }

}  // namespace ridge
