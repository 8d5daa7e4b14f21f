#pragma once

#include "ridge/analyze/interleaved.h"
#include "ridge/cli/terminal.h"

namespace ridge {

// Shows on the terminal, which outlives it, how far runs that take turns have come.
TurnTaking progress_on(Terminal& terminal);

}  // namespace ridge
