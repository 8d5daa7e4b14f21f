#pragma once

#include <string_view>

namespace ridge {

std::string_view version();  // of the library: "0.1.0"

}  // namespace ridge
