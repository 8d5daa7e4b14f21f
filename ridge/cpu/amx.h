#pragma once

namespace ridge {

// Whether this processor multiplies tiles of bf16 (AMX), and the system lets this process do so:
// Linux does once it was asked for the 8 KiB of a thread's tiles.
bool may_use_amx();

}  // namespace ridge
