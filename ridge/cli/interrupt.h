#pragma once

namespace ridge {

// From here on SIGINT and SIGTERM are noted instead of ending the program. Each only once: a second
// one of the same kind ends it at once. Call it on the thread that runs kernels.
void note_interrupts();

// The signal that came since, or 0.
int interrupt_noted();

}  // namespace ridge
