#pragma once

#include <filesystem>
#include <string_view>

namespace ridge {

// Where what can be computed again is kept between runs: $XDG_CACHE_HOME/ridge/`name`, or
// ~/.cache/ridge/`name`; empty without a home.
std::filesystem::path user_cache(std::string_view name);

}  // namespace ridge
