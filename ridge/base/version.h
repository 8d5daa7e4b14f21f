#pragma once

#include <string_view>

namespace ridge {

std::string_view version();  // of the library: "0.1.0"

// The commit that it was built from, with "+" behind it if the sources had changes; empty where
// they were in no repository.
std::string_view commit();

}  // namespace ridge
