#pragma once

#include <fmt/format.h>

#include <cstdio>

#include "ridge/base/error.h"

namespace ridge {

// Runs a benchmark and returns the exit status of its program: 1 after an Error, which is printed.
template <class Run>
int exit_status_of(const Run& run) {
  try {
    run();
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

}  // namespace ridge
