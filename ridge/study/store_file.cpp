#include "ridge/study/store_file.h"

#include <cstdlib>
#include <system_error>

#include "ridge/base/error.h"

namespace ridge {

namespace fs = std::filesystem;

fs::path default_store_file() { return fs::path(".ridge") / "runs.db"; }

std::optional<StoreFile> find_store_file(std::string_view named) {
  if (!named.empty()) return StoreFile{named, true};
  if (const char* variable = std::getenv("RIDGE_STORE"); variable && *variable)
    return StoreFile{variable, true};
  std::error_code fault;
  const fs::path here = fs::current_path(fault);
  for (fs::path directory = here; !directory.empty(); directory = directory.parent_path()) {
    const fs::path file = directory / default_store_file();
    // The shorter path is the one that a person knows.
    if (fs::exists(file, fault))
      return StoreFile{directory == here ? default_store_file() : file, false};
    if (directory == directory.root_path()) break;
  }
  return std::nullopt;
}

fs::path existing_store_file(std::string_view named) {
  const std::optional<StoreFile> found = find_store_file(named);
  if (!found)
    throw IoError(
        "there is no store of runs here: make one with ridge store init, or name one with --store "
        "FILE or $RIDGE_STORE");
  std::error_code fault;
  if (!fs::exists(found->path, fault))
    throw IoError("there is no store {}{}: ridge store init --store {} makes it",
                  found->path.string(), named.empty() ? ", which $RIDGE_STORE names" : "",
                  found->path.string());
  return found->path;
}

}  // namespace ridge
