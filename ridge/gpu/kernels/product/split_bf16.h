#pragma once

// f32 split into three components of bf16, from the largest to the smallest: x = p1 + p2 + p3,
// exactly, unless |x| is less than 2^-110, where components are below the least bf16 and the sum is
// x within 2^-134. p1 is x cut off, p2 the rest rounded to nearest, p3 what remains: |p2| < 2^-7
// |x|, |p3| <= 2^-16 |x|. What is infinite or NaN has a component that is NaN.

#include <cstddef>
#include <cstdint>

#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

inline constexpr int split_components = 3;

// The elements from row to row in components of a matrix of so many columns: such that rows begin
// at multiples of 16 bytes.
constexpr std::int64_t split_pitch(std::int64_t columns) { return (columns + 7) / 8 * 8; }

// The bytes of a matrix in components.
constexpr std::size_t split_bytes(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(split_components * rows * split_pitch(columns)) * 2;
}

// components[3][rows][split_pitch(columns)], bf16, of x[rows][columns], f32. `components` is
// aligned to 16 bytes, x to its elements; what lies between columns and pitch is not written.
// Enqueues; DeviceError.
void write_split(const Context& gpu, const float* x, std::int64_t rows, std::int64_t columns,
                 void* components);

// c[n] = the sum of parts[count][n], in their order, with `accumulate` after c's own. Enqueues;
// DeviceError.
void add_parts(const Context& gpu, const float* parts, int count, std::int64_t n, bool accumulate,
               float* c);

}  // namespace ridge::gpu
