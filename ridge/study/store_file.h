#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace ridge {

// Which file is the store: the one that is named, else that of $RIDGE_STORE, else the nearest
// .ridge/runs.db in the working directory and those above it, as git finds its folder.
struct StoreFile {
  std::filesystem::path path;
  bool named = false;  // it was named, in one of both ways, and need not exist
};
std::optional<StoreFile> find_store_file(std::string_view named);

// The same of a store that exists. IoError, with what to do, if there is none.
std::filesystem::path existing_store_file(std::string_view named);

// Where a store of the working directory is made: .ridge/runs.db.
std::filesystem::path default_store_file();

}  // namespace ridge
