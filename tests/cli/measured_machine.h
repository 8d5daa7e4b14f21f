#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>
#include <string>

#include "tests/cli/program.h"

namespace ridge {

// While it lives, programs have a cache directory of their own with the ceilings of this machine on
// one thread, measured in a hurry: what needs ceilings is printed on every machine.
class MeasuredMachine {
 public:
  MeasuredMachine() {
    if (const char* set = ::getenv("XDG_CACHE_HOME")) before_ = set;
    ::setenv("XDG_CACHE_HOME", cache_.path("").c_str(), 1);
    const ProgramResult measured =
        cache_.run({"ridge", "roofline", "--seconds", "0.1", "--threads", "1"});
    EXPECT_EQ(measured.exit_code, 0) << measured.err;
  }
  ~MeasuredMachine() {
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  }
  MeasuredMachine(const MeasuredMachine&) = delete;
  MeasuredMachine& operator=(const MeasuredMachine&) = delete;

 private:
  Sandbox cache_;
  std::optional<std::string> before_;
};

}  // namespace ridge
