#pragma once

#include <cstdint>

namespace ridge {

// Whether this processor multiplies tiles of bf16 (AMX), and the system lets this process do so:
// Linux does once it was asked for the 8 KiB of a thread's tiles.
bool may_use_amx();

// Makes all tiles 16 rows of 64 bytes. Source: Intel's manual of instructions, LDTILECFG,
// palette 1.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace ridge
