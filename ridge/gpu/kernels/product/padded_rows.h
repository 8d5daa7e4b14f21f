#pragma once

// Copies of matrices whose rows do not begin at multiples of 16 bytes to where they do, and back.

#include <cstdint>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// The elements from row to row of so many columns, such that each begins at a multiple of 16 bytes.
std::int64_t padded_pitch(std::int64_t columns, DType dtype);

// A matrix in memory, rows `pitch` elements apart.
struct PitchedRows {
  void* data;
  std::int64_t pitch;
};

// to[rows][columns] = from[rows][columns], of 16 bits each. What lies between columns and pitch is
// not written. Both begin at multiples of 16 bytes. Enqueues; DeviceError.
void copy_rows_16_bit(const Context& gpu, PitchedRows from, PitchedRows to, std::int64_t rows,
                      std::int64_t columns);

// The same of f32, or with `accumulate` to += from.
void copy_rows_f32(const Context& gpu, PitchedRows from, PitchedRows to, std::int64_t rows,
                   std::int64_t columns, bool accumulate);

}  // namespace ridge::gpu
