#pragma once

#include <string>
#include <string_view>

#include "ridge/trace/check/facts.h"

namespace ridge::trace {

// The text of a piece of a trace with what Python's reader of JSON or a browser takes and the
// grammar of JSON does not replaced, and noted in `file`. Integers beyond 64 bits become numbers
// with a fraction.
std::string repaired(std::string_view text, TraceFile& file);

}  // namespace ridge::trace
