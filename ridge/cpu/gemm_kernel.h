#pragma once

// The innermost part of our products: what the rest of ridge/cpu/gemm* hands it is packed into
// words of 32 bits, each a float or a pair of bf16 values that follow each other along k.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ridge/base/dtype.h"
#include "ridge/cpu/instructions.h"

namespace ridge {

// Words per vector register, and the rows and columns of C whose sums the registers hold: 28 of the
// 32 of AVX-512 (whose instructions fetch a factor from memory), 12 of 16 of AVX2, 8 of 16 of SSE2
// (which needs a register for each product). The rows fit a vector, which packing relies on.
constexpr std::int64_t lanes = vector_floats;
constexpr std::int64_t block_rows = lanes == 16 ? 14 : lanes == 8 ? 6 : 4;
constexpr std::int64_t block_columns = 2 * lanes;

// Whether pairs of bf16 are multiplied as such; where not, packing widens them to floats.
constexpr bool has_bf16_pairs = compiled_instructions == Instructions::avx512_bf16;

// What the words of a product are made from.
enum class Words : std::uint8_t { floats, widened_bf16, bf16_pairs };

constexpr Words words_of(DType in) {
  if (in == DType::f32) return Words::floats;
  return has_bf16_pairs ? Words::bf16_pairs : Words::widened_bf16;
}

// Values of k that one word holds.
constexpr std::int64_t k_per_word(Words words) { return words == Words::bf16_pairs ? 2 : 1; }

// One block of C: c[i, j] (+)= sum over steps of a[step, i] * b[step, j], in the order of the
// steps, in one chain of fused multiply-adds where the processor has them. So the bits of an
// element depend on the steps alone, not on its place in a block or the extents of one.
struct BlockProduct {
  std::int64_t rows = 0;     // 1 to block_rows
  std::int64_t columns = 0;  // 1 to block_columns
  std::int64_t steps = 0;
  const float* a = nullptr;  // words [steps, lanes], of which the first `rows` are read
  // Words [steps, block_columns], of which the columns rounded up to whole vectors are read, with
  // `b_stride` words from one step to the next.
  const float* b = nullptr;
  std::int64_t b_stride = block_columns;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  bool accumulate = false;  // adds to c; otherwise c is overwritten
  // If given, what c would come to be is rounded to here instead, and c is left as it is.
  BFloat16* rounded = nullptr;
  std::int64_t rounded_stride = 0;
};

void multiply_block(Words words, const BlockProduct& block);

// Rows or columns of a stored matrix, side by side at each of some values of k.
struct PackSource {
  const void* data = nullptr;  // at the first element
  std::int64_t stride = 0;     // elements from one stored row to the next
  bool k_runs_along_rows = false;
  std::int64_t k = 0;
  std::int64_t readable = 0;  // elements from `data` to the end of the matrix
};

// Where some of a source's rows or columns go: words [ceil(k / k_per_word), padded_width], with a
// padded_width that is `width` rounded up to whole vectors.
struct PackPart {
  std::int64_t first = 0, width = 0;
  float* words = nullptr;
};

// Overwrites the words of all parts. What is missing in the last pair of an odd k becomes 0;
// columns beyond a part's width become anything, but nothing beyond the matrix is read. Parts that
// lie side by side in memory are packed together, row after row.
void pack(Words kind, const PackSource& source, std::span<const PackPart> parts);

}  // namespace ridge
