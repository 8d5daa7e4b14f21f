#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ridge {

// A shared library that is opened at run time: one that a machine may have, but that no build
// should need. It stays open until the end of the program, since what it started may live as long.
class SharedLibrary {
 public:
  // The first of `names` (file names as the loader searches them, or paths) that can be opened. If
  // none can, is_open() is false and error() the loader's message about the last.
  explicit SharedLibrary(std::span<const std::string> names);

  bool is_open() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  std::string path() const;  // of the file that was opened; empty if none was

  // Null if the library has no function of this name. F is its type, such as int(const char*).
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace ridge
