#pragma once

// f32 in three pieces of bf16, from the largest to the smallest: x = p1 + p2 + p3, exactly, unless
// |x| is less than 2^-110, where pieces are below the least bf16 and the sum is x within 2^-134. p1
// is x cut off, p2 the rest rounded to nearest, p3 what remains: |p2| < 2^-7 |x|, |p3| <= 2^-16
// |x|. What is infinite or NaN has a piece that is NaN.

#include <cstddef>
#include <cstdint>

#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

inline constexpr int piece_count = 3;

// The elements from row to row in pieces of a matrix of so many columns: such that rows begin at
// multiples of 16 bytes.
constexpr std::int64_t pieces_pitch(std::int64_t columns) { return (columns + 7) / 8 * 8; }

// The bytes of a matrix in pieces.
constexpr std::size_t pieces_bytes(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(piece_count * rows * pieces_pitch(columns)) * 2;
}

// pieces[3][rows][pieces_pitch(columns)], bf16, of x[rows][columns], f32. `pieces` is aligned to 16
// bytes, x to its elements; what lies between columns and pitch is not written. Enqueues;
// DeviceError.
void write_pieces(const Context& gpu, const float* x, std::int64_t rows, std::int64_t columns,
                  void* pieces);

// c[n] = the sum of parts[count][n], in their order, with `accumulate` after c's own. Enqueues;
// DeviceError.
void add_parts(const Context& gpu, const float* parts, int count, std::int64_t n, bool accumulate,
               float* c);

}  // namespace ridge::gpu
