#include "ridge/base/version.h"

namespace ridge {

std::string_view version() { return RIDGE_VERSION; }

}  // namespace ridge
