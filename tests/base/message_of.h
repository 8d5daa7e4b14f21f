#pragma once

#include <string>

namespace ridge {

// What the error says that a function throws: an E, or nothing.
template <class E, class F>
std::string message_of(const F& function) {
  try {
    function();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace ridge
