#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace ridge {

// The root of everything Ridge throws. A message says what was wrong, with which value, and what to
// do about it; it is one line and names no source file.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  template <class... Args>
  requires(sizeof...(Args) > 0) explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// The caller asked for something that makes no sense: a size of zero, heads that do not divide.
struct UsageError : Error {
  using Error::Error;
};

// Operands whose shapes or dtypes an operator does not take.
struct ShapeError : Error {
  using Error::Error;
};

// A file whose content is not what its format says: truncated, corrupt, foreign.
struct FormatError : Error {
  using Error::Error;
};

// The operating system refused: missing file, no permission, full disk.
struct IoError : Error {
  using Error::Error;
};

// A device that is absent, or a library call on it that failed.
struct DeviceError : Error {
  using Error::Error;
};

// Another rank of the run that has ended, or does not answer.
struct RankError : Error {
  using Error::Error;
};

// More memory than there is.
struct OutOfMemoryError : Error {
  using Error::Error;
};

}  // namespace ridge
