#pragma once

// Products of matrices small enough to lie in a cache, called from within one task of a kernel.

#include <cstdint>

#include "ridge/cpu/instructions.h"

namespace ridge {

// A multiple of every vector_floats, so that what is rounded up to it suits each instruction set.
inline constexpr std::int64_t widest_vector = 16;

constexpr std::int64_t padded_to_vectors(std::int64_t n) {
  return (n + widest_vector - 1) / widest_vector * widest_vector;
}

// Element (i, k) of a left operand lies at data[i * row + k * column]: one of both is 1.
struct LeftOperand {
  const float* data;
  std::int64_t row, column;
};

// Rows of `stride` floats; data is aligned to 64 bytes and stride a multiple of widest_vector.
struct RightOperand {
  const float* data;
  std::int64_t stride;
};
struct Product {
  float* data;
  std::int64_t stride;
};

struct ProductExtents {
  std::int64_t m, n, k;  // all at least 1, n a multiple of vector_floats
};

// c[i, j] = sum_k a(i, k) b[k, j], or += if `accumulate`, in ascending order of k.
void small_product(LeftOperand a, RightOperand b, Product c, ProductExtents extents,
                   bool accumulate);

// to[j, i] = from[i, j] for `rows` and `columns` that are multiples of widest_vector, both aligned
// like a right operand.
void transpose(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t columns);

}  // namespace ridge
