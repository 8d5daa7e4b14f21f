#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace ridge {

// Text that grows by formatted lines.
class Lines {
 public:
  template <class... Args>
  void operator()(fmt::format_string<Args...> format, Args&&... arguments) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(arguments)...);
    text += '\n';
  }
  std::string text;
};

}  // namespace ridge
