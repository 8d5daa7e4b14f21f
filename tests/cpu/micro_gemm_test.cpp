#include "ridge/cpu/micro_gemm.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridge {
namespace {

struct alignas(64) Matrix {
  static constexpr std::int64_t stride = 80;
  float data[80 * stride];

  // Small integers, so that every sum is exact.
  explicit Matrix(int seed) {
    for (int i = 0; i < 80 * stride; ++i)
      data[i] = static_cast<float>((i * 37 + seed * 11 + i / 7) % 9 - 4);
  }
  float& operator()(std::int64_t i, std::int64_t j) { return data[i * stride + j]; }
};

void expect_product(ProductExtents e, bool transposed, bool accumulate) {
  Matrix a(1), b(2), c(3);
  const Matrix before = c;
  const LeftOperand left{a.data, transposed ? 1 : Matrix::stride, transposed ? Matrix::stride : 1};
  small_product(left, {b.data, Matrix::stride}, {c.data, Matrix::stride}, e, accumulate);
  for (std::int64_t i = 0; i < 80; ++i)
    for (std::int64_t j = 0; j < Matrix::stride; ++j) {
      float expected = before.data[i * Matrix::stride + j];
      if (i < e.m && j < e.n) {
        if (!accumulate) expected = 0;
        for (std::int64_t k = 0; k < e.k; ++k)
          expected += (transposed ? a(k, i) : a(i, k)) * b(k, j);
      }
      ASSERT_EQ(c(i, j), expected)
          << "element " << i << ", " << j << " of " << e.m << " x " << e.n << " x " << e.k;
    }
}

TEST(SmallProduct, IsExactInIntegersAndWritesNothingElse) {
  for (const bool transposed : {false, true})
    for (const bool accumulate : {false, true})
      for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 70})
        for (std::int64_t n = vector_floats; n <= 80; n += vector_floats)
          for (const std::int64_t k : {1, 2, 33})
            ASSERT_NO_FATAL_FAILURE(expect_product({m, n, k}, transposed, accumulate));
}

TEST(Transpose, MovesEveryElementAndWritesNothingElse) {
  for (const std::int64_t rows : {16, 48})
    for (const std::int64_t columns : {16, 32, 80}) {
      Matrix from(1), to(2);
      const Matrix before = to;
      transpose(from.data, Matrix::stride, to.data, Matrix::stride, rows, columns);
      for (std::int64_t i = 0; i < 80; ++i)
        for (std::int64_t j = 0; j < Matrix::stride; ++j)
          ASSERT_EQ(to(i, j),
                    i < columns && j < rows ? from(j, i) : before.data[i * Matrix::stride + j]);
    }
}

}  // namespace
}  // namespace ridge
