#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/base/temporary_directory.h"

namespace ridge {

// While alive, this process and its children keep what they measure of the machine in a directory
// of its own: a test neither reads nor writes the choices of the user's tuner.
class TemporaryCache {
 public:
  TemporaryCache() {
    if (const char* set = ::getenv("XDG_CACHE_HOME")) before_ = set;
    ::setenv("XDG_CACHE_HOME", directory_.path.c_str(), 1);
  }
  ~TemporaryCache() {
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  }
  TemporaryCache(const TemporaryCache&) = delete;
  TemporaryCache& operator=(const TemporaryCache&) = delete;

  const std::filesystem::path& path() const { return directory_.path; }

 private:
  TemporaryDirectory directory_;
  std::optional<std::string> before_;
};

}  // namespace ridge
