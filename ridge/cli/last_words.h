#pragma once

#include <optional>

#include "ridge/base/error.h"

namespace ridge {

// What a run leaves behind is written as far as the system takes it: a file that it refuses, as a
// full disk does, keeps neither the others from being written nor the results from being printed.
class LastWords {
 public:
  template <class Action>
  void attempt(const Action& action) {
    try {
      action();
    } catch (const IoError& error) {
      if (!first_fault_) first_fault_ = error;
    }
  }
  void throw_fault() const {
    if (first_fault_) throw IoError(*first_fault_);
  }

 private:
  std::optional<IoError> first_fault_;
};

}  // namespace ridge
