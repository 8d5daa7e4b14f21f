#include "ridge/base/user_cache.h"

#include <cstdlib>

namespace ridge {

std::filesystem::path user_cache(std::string_view name) {
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return std::filesystem::path(value ? value : "");
  };
  // The specification tells to ignore a relative path.
  if (const auto cache = variable("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "ridge" / name;
  const auto home = variable("HOME");
  return home.empty() ? home : home / ".cache" / "ridge" / name;
}

}  // namespace ridge
