#pragma once

// What stands in a store's file, and how an older file becomes a newer one.

#include <filesystem>
#include <span>
#include <string_view>

#include "ridge/study/sqlite.h"

namespace ridge {

// Step number i, from 0 on, brings a store of version i to version i + 1. A step that was released
// never changes: what is to be different is another step at the end.
std::span<const std::string_view> store_steps();

// Makes a file with an empty store, complete or not at all, unless there is a file of that name:
// whether there was none. IoError if the system refuses.
bool make_store(const std::filesystem::path& file);

// Opens a store, to read it where it cannot be written, and takes the steps that it lacks. IoError
// if there is no such file, if it is of a newer version than the last of `steps`, or if it lacks
// steps and cannot be written; FormatError if it is something else.
Database open_store(const std::filesystem::path& file,
                    std::span<const std::string_view> steps = store_steps());

}  // namespace ridge
