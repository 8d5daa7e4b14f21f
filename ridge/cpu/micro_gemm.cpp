#include "ridge/cpu/micro_gemm.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ridge {
namespace {

using Vector [[gnu::vector_size(vector_floats * sizeof(float)), gnu::may_alias]] = float;

const Vector& vector_at(const float* p) { return *reinterpret_cast<const Vector*>(p); }
Vector& vector_at(float* p) { return *reinterpret_cast<Vector*>(p); }

// Sums held in registers at a time: 16 vectors of the 32 of AVX-512, 8 of the 16 before it. Of the
// others, `max_vectors` hold a row of b and one an element of a. Where b is narrow, more rows keep
// as many sums going: fewer would wait for each other.
constexpr int max_sums = vector_floats == 16 ? 16 : 8;
constexpr int max_vectors = max_sums / 4;
constexpr int max_rows = 8;
constexpr int rows_of(int vectors) { return std::min(max_rows, max_sums / vectors); }

struct Block {
  LeftOperand a;
  RightOperand b;
  Product c;
  std::int64_t k;
  bool accumulate;
};

template <int rows, int vectors>
void block_product(const Block& block) {
  const std::int64_t a_row = block.a.row, a_column = block.a.column, b_stride = block.b.stride;
  Vector sum[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      sum[i][v] = block.accumulate
                      ? vector_at(block.c.data + i * block.c.stride + v * vector_floats)
                      : Vector{};
  const float *a = block.a.data, *b = block.b.data;
  // Each row of b is loaded one step ahead. Not for its latency: GCC would otherwise read a value
  // that is loaded and used up within one step from memory again at each of its uses, which keeps
  // the one load a cycle busier than the multiplications (92 instead of 115 GFLOP/s on Zen 4).
  Vector next[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) next[v] = vector_at(b + v * vector_floats);
  for (std::int64_t k = block.k; k > 0; --k, a += a_column) {
    Vector row[vectors];
    b += k > 1 ? b_stride : 0;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      row[v] = next[v];
      next[v] = vector_at(b + v * vector_floats);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const float factor = a[i * a_row];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[i][v] += factor * row[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      vector_at(block.c.data + i * block.c.stride + v * vector_floats) = sum[i][v];
}

using BlockProduct = void (*)(const Block&);

// By vectors - 1, then by rows - 1.
template <int vectors, int... row>
constexpr auto rows_of_blocks(std::integer_sequence<int, row...>) {
  return std::array<BlockProduct, max_rows>{block_product<row + 1, vectors>...};
}
template <int... v>
constexpr auto all_blocks(std::integer_sequence<int, v...>) {
  return std::array{rows_of_blocks<v + 1>(std::make_integer_sequence<int, rows_of(v + 1)>{})...};
}

// The elements of a and b in turn, from their lower or upper halves.
template <bool upper, std::size_t... i>
Vector interleave(Vector a, Vector b, std::index_sequence<i...>) {
  constexpr std::size_t first = upper ? vector_floats / 2 : 0;
  return Vector{(i % 2 == 0 ? a[first + i / 2] : b[first + i / 2])...};
}

// A perfect shuffle of all rows moves the index of a row by one bit into that of a column: as many
// as it has bits transpose the block.
void transpose_block(const float* from, std::int64_t from_stride, float* to,
                     std::int64_t to_stride) {
  constexpr std::make_index_sequence<vector_floats> lanes{};
  constexpr int half = vector_floats / 2;
  Vector x[vector_floats], y[vector_floats];
#pragma GCC unroll 16
  for (int i = 0; i < vector_floats; ++i) x[i] = vector_at(from + i * from_stride);
#pragma GCC unroll 4
  for (std::int64_t span = 1; span < vector_floats; span *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < half; ++i) {
      y[2 * i] = interleave<false>(x[i], x[i + half], lanes);
      y[2 * i + 1] = interleave<true>(x[i], x[i + half], lanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < vector_floats; ++i) x[i] = y[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < vector_floats; ++i) vector_at(to + i * to_stride) = x[i];
}

}  // namespace

void small_product(LeftOperand a, RightOperand b, Product c, ProductExtents extents,
                   bool accumulate) {
  static constexpr auto blocks = all_blocks(std::make_integer_sequence<int, max_vectors>{});
  // A panel of b stays in the first cache while the rows of a pass over it.
  for (std::int64_t j = 0; j < extents.n; j += max_vectors * vector_floats) {
    const std::int64_t vectors =
        std::min<std::int64_t>(max_vectors, (extents.n - j) / vector_floats);
    const auto& of_width = blocks[static_cast<std::size_t>(vectors - 1)];
    const std::int64_t most = rows_of(static_cast<int>(vectors));
    for (std::int64_t i = 0; i < extents.m; i += most) {
      const std::int64_t rows = std::min(most, extents.m - i);
      of_width[static_cast<std::size_t>(rows - 1)]({.a = {a.data + i * a.row, a.row, a.column},
                                                    .b = {b.data + j, b.stride},
                                                    .c = {c.data + i * c.stride + j, c.stride},
                                                    .k = extents.k,
                                                    .accumulate = accumulate});
    }
  }
}

void transpose(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; i += vector_floats)
    for (std::int64_t j = 0; j < columns; j += vector_floats)
      transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
}

}  // namespace ridge
