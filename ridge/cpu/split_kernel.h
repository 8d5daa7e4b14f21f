#pragma once

// The innermost part of products of f32 operands on AMX, which multiplies tiles of bf16 and sums in
// f32. An f32 of 24 bits is the sum of three bf16 of 8, its parts: the nearest bf16, the one
// nearest to what is left, and the rest. Of the nine products of parts the three least, below 2^-24
// of the result, are left out. An instruction sums 32 terms of one part by one other from zero and
// adds that to its tile, rounding to nearest. A block of some steps is summed from zero, too, and
// then added to the sums so far: a long sum is rounded once a block.

#include <array>
#include <cstdint>

#include "ridge/cpu/gemm_kernel.h"

namespace ridge {

// Whether the rest of this may be called: this processor has AMX, and is one compiled for.
bool may_multiply_split();

// Rows or columns of C that a tile and a strip of an operand have.
constexpr std::int64_t tile_width = 16, strip_width = 2 * tile_width;
// Values of k in one step: the width of a tile.
constexpr std::int64_t step_k = 32;
// Words of a row of a tile, and floats of C of two strips.
constexpr std::int64_t row_words = 16, strip_sums = strip_width * strip_width;
// Words of a strip at one step: of each of three parts two tiles of 16 x 16. A word is the pair of
// bf16 at k and k + 16: any order of k suits that is the same in both operands, and this one needs
// no shuffle.
constexpr std::int64_t step_words = 3 * 2 * 256;

// A tile of the left operand has a row of C in each of its rows, one of the right operand a pair of
// values of k.
enum class OperandSide : std::uint8_t { left, right };

// Splits `width` (1 to strip_width) of a source's rows or columns of f32, from `first` on, into the
// strip's words [ceil(source.k / step_k), step_words]. What is missing in k or in a tile becomes 0,
// and nothing beyond the source's rows is read; a second tile that the width does not reach is left
// as it is.
void split_strip(const PackSource& source, std::int64_t first, std::int64_t width, OperandSide side,
                 std::uint32_t* words);

// Splits one row of the left operand, k floats, or zeros if it is null: the words of a part at a
// step, 16, lie at words + part * part_words + step * words_of_step.
void split_row(const float* row, std::int64_t k, std::uint32_t* words, std::int64_t part_words,
               std::int64_t words_of_step);

// Splits up to 16 floats of a row of the right operand and as many of the row 16 further, or zeros
// where one is null: 16 words at words + part * part_words.
void split_pair(const float* row, const float* other, std::int64_t columns, std::uint32_t* words,
                std::int64_t part_words);

// Steps that are summed from zero at most: more would be less exact than sums in f32.
constexpr std::int64_t most_block_steps = 16;

// One block of C: to[i, j] = (to[i, j] if it adds) + (sum over the steps of left by right).
struct SplitBlock {
  std::int64_t rows = 0, columns = 0;  // 16 or 32 each
  std::int64_t steps = 0;              // up to most_block_steps
  // Where each step's tiles lie: rows of 16 words, of the left operand those of a second tile next;
  // how many words further those of the next part and of the right operand's second tile.
  std::array<const std::uint32_t*, most_block_steps> left, right;
  std::int64_t left_part = 2 * 256, right_part = 2 * 256, right_tile = 256;
  bool adds = false;
  float* to = nullptr;
  std::int64_t stride = 0;
};

// Makes the calling thread's tiles 16 rows of 64 bytes, for as long as it lives.
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

// While an AmxTiles of the thread lives.
void multiply_split(const SplitBlock& block);

}  // namespace ridge
