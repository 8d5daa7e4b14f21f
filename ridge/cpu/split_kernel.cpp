#include "ridge/cpu/split_kernel.h"

#include "ridge/cpu/split_gemm.h"

// Written for the instructions of a processor that has AMX; elsewhere there is nothing to call.
#if defined(__AVX512BF16__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ridge/cpu/amx.h"
#include "ridge/cpu/micro_gemm.h"

namespace ridge {
namespace {

constexpr std::int64_t tile_words = tile_width * 16, parts = 3;

// GCC's intrinsics of tiles do not say that they read or write memory, so the compiler would move
// stores past them.
template <int tile>
void load_tile(const void* from, std::int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(tile) : "memory");
}

template <int tile>
void store_tile(void* to, std::int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(tile) : "memory");
}

template <int tile>
void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}

template <int sums, int left, int right>
void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
}

// Tiles 0 to 3 are sums, by rows; 4 and 5 are of the left operand, 6 and 7 of the right one.
constexpr int left_tile = 4, right_tile = 6;

template <int rows, int columns>
void store_sums(float* to, std::int64_t stride) {
  const std::int64_t row_bytes = stride * static_cast<std::int64_t>(sizeof(float));
  store_tile<0>(to, row_bytes);
  if constexpr (columns > 1) store_tile<1>(to + tile_width, row_bytes);
  if constexpr (rows > 1) store_tile<2>(to + tile_width * stride, row_bytes);
  if constexpr (rows > 1 && columns > 1)
    store_tile<3>(to + tile_width * stride + tile_width, row_bytes);
}

// Loads the tiles of one part of one operand at one step.
template <int first, int tiles>
void load_part(const std::uint32_t* words, std::int64_t next_tile) {
  constexpr std::int64_t row_bytes = 64;
  load_tile<first>(words, row_bytes);
  if constexpr (tiles > 1) load_tile<first + 1>(words + next_tile, row_bytes);
}

template <int rows, int columns>
void multiply_part() {
  multiply_tiles<0, left_tile, right_tile>();
  if constexpr (columns > 1) multiply_tiles<1, left_tile, right_tile + 1>();
  if constexpr (rows > 1) multiply_tiles<2, left_tile + 1, right_tile>();
  if constexpr (rows > 1 && columns > 1) multiply_tiles<3, left_tile + 1, right_tile + 1>();
}

// Stores the block's own sum, begun from zero: of each step first the small products. One operand
// changes at a time.
template <int rows, int columns>
void multiply(const SplitBlock& block, float* to, std::int64_t stride) {
  clear_tile<0>();
  if constexpr (columns > 1) clear_tile<1>();
  if constexpr (rows > 1) clear_tile<2>();
  if constexpr (rows > 1 && columns > 1) clear_tile<3>();
  const auto load_left = [&](std::size_t step, std::int64_t part) {
    load_part<left_tile, rows>(block.left[step] + part * block.left_part, tile_words);
  };
  const auto load_right = [&](std::size_t step, std::int64_t part) {
    load_part<right_tile, columns>(block.right[step] + part * block.right_part, block.right_tile);
  };
  constexpr std::int64_t high = 0, middle = 1, low = 2;
  for (std::size_t step = 0; step < static_cast<std::size_t>(block.steps); ++step) {
    load_left(step, low);
    load_right(step, high);
    multiply_part<rows, columns>();
    load_left(step, middle);
    multiply_part<rows, columns>();
    load_right(step, middle);
    multiply_part<rows, columns>();
    load_left(step, high);
    multiply_part<rows, columns>();
    load_right(step, low);
    multiply_part<rows, columns>();
    load_right(step, high);
    multiply_part<rows, columns>();
  }
  store_sums<rows, columns>(to, stride);
}

void multiply_tiles_of(const SplitBlock& block, float* to, std::int64_t stride) {
  if (block.rows > tile_width)
    block.columns > tile_width ? multiply<2, 2>(block, to, stride)
                               : multiply<2, 1>(block, to, stride);
  else
    block.columns > tile_width ? multiply<1, 2>(block, to, stride)
                               : multiply<1, 1>(block, to, stride);
}

typedef float Floats __attribute__((vector_size(64)));
typedef std::uint32_t SixteenWords __attribute__((vector_size(64)));

typedef Floats UnalignedFloats __attribute__((aligned(4)));

// Asks for what is written last, while the tiles are multiplied: rows of C lie too far apart for
// the hardware to see it coming.
void fetch_sums(const SplitBlock& block) {
  for (std::int64_t i = 0; i < block.rows; ++i)
    for (std::int64_t j = 0; j < block.columns; j += tile_width)
      __builtin_prefetch(block.to + i * block.stride + j, 1);
}

template <int tiles>
void add_sums(const SplitBlock& block, const float* sums) {
  float* to = block.to;
  for (std::int64_t i = 0; i < block.rows; ++i) {
    for (std::int64_t j = 0; j < tiles * tile_width; j += tile_width)
      *reinterpret_cast<UnalignedFloats*>(to + j) += *reinterpret_cast<const Floats*>(sums + j);
    to += block.stride, sums += strip_width;
  }
}

constexpr std::uint32_t upper = 0xFFFF0000;

// The nearest bf16, in the upper halves; of two as near, the one that is further from 0.
SixteenWords rounded(Floats x) { return ((SixteenWords)x + 0x8000) & upper; }

// The parts of 16 floats, each in the upper halves of words whose lower halves are 0.
std::array<SixteenWords, parts> parts_of(Floats x) {
  const SixteenWords high = rounded(x);
  const Floats left = x - (Floats)high;
  const SixteenWords middle = rounded(left);
  return {high, middle, (SixteenWords)(left - (Floats)middle)};
}

// Up to 16 floats, and 0 in place of those beyond `count`.
Floats load_some(const float* from, std::int64_t count) {
  const auto there = std::clamp<std::int64_t>(count, 0, 16);
  return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << there) - 1), from);
}

// Writes the pairs of parts of 16 floats and 16 more.
void store_parts(Floats first, Floats second, std::uint32_t* words, std::int64_t part_words) {
  const auto first_half = parts_of(first), second_half = parts_of(second);
  for (std::size_t part = 0; part < parts; ++part, words += part_words)
    *reinterpret_cast<SixteenWords*>(words) = first_half[part] >> 16 | (second_half[part] & upper);
}

// Asks for 32 floats that the next step reads: rows that lie apart are too many for the hardware to
// follow.
void fetch(const float* from) {
  __builtin_prefetch(from);
  __builtin_prefetch(from + 16);
}

// Splits one tile at one step. Lines are rows of the source, which hold either 32 values of k, or
// up to 16 rows or columns of C at one k.
void split_tile(const PackSource& source, std::int64_t first, std::int64_t width, std::int64_t k,
                OperandSide side, std::uint32_t* words) {
  const auto* const data = static_cast<const float*>(source.data);
  const std::int64_t left = source.k - k;
  const bool transposes = source.k_runs_along_rows != (side == OperandSide::left);
  alignas(64) std::uint32_t lines[parts][tile_words];
  for (std::int64_t line = 0; line < tile_width; ++line) {
    Floats x0{}, x1{};
    if (source.k_runs_along_rows) {
      if (line < width) {
        const float* const row = data + (first + line) * source.stride + k;
        fetch(row + step_k);
        fetch(row + tile_width * source.stride);
        x0 = load_some(row, left);
        x1 = load_some(row + 16, left - 16);
      }
    } else {
      const float* const row = data + (k + line) * source.stride + first;
      fetch(row + step_k * source.stride);
      fetch(row + (step_k + 16) * source.stride);
      if (line < left) x0 = load_some(row, width);
      if (line + 16 < left) x1 = load_some(row + 16 * source.stride, width);
    }
    store_parts(x0, x1, (transposes ? lines[0] : words) + line * tile_width,
                transposes ? tile_words : 2 * tile_words);
  }
  if (!transposes) return;
  for (std::int64_t part = 0; part < parts; ++part)
    transpose(reinterpret_cast<const float*>(lines[part]), tile_width,
              reinterpret_cast<float*>(words + part * 2 * tile_words), tile_width, tile_width,
              tile_width);
}

}  // namespace

bool may_multiply_split() { return may_use_amx(); }

void split_strip(const PackSource& source, std::int64_t first, std::int64_t width, OperandSide side,
                 std::uint32_t* words) {
  for (std::int64_t k = 0; k < source.k; k += step_k, words += step_words)
    for (std::int64_t i = 0; i < width; i += tile_width)
      split_tile(source, first + i, std::min(tile_width, width - i), k, side,
                 words + (i > 0 ? tile_words : 0));
}

void split_row(const float* row, std::int64_t k, std::uint32_t* words, std::int64_t part_words,
               std::int64_t words_of_step) {
  for (std::int64_t at = 0; at < k; at += step_k, words += words_of_step) {
    Floats x0{}, x1{};
    if (row) {
      x0 = load_some(row + at, k - at);
      x1 = load_some(row + at + 16, k - at - 16);
    }
    store_parts(x0, x1, words, part_words);
  }
}

void split_pair(const float* row, const float* other, std::int64_t columns, std::uint32_t* words,
                std::int64_t part_words) {
  store_parts(row ? load_some(row, columns) : Floats{},
              other ? load_some(other, columns) : Floats{}, words, part_words);
}

AmxTiles::AmxTiles() {
  static constexpr TileConfiguration configuration;
  asm volatile("ldtilecfg %0" ::"m"(configuration));
}

AmxTiles::~AmxTiles() { asm volatile("tilerelease"); }

void multiply_split(const SplitBlock& block) {
  fetch_sums(block);
  if (!block.adds) return multiply_tiles_of(block, block.to, block.stride);
  alignas(64) float sums[strip_sums];
  multiply_tiles_of(block, sums, strip_width);
  block.columns > tile_width ? add_sums<2>(block, sums) : add_sums<1>(block, sums);
}

}  // namespace ridge

#else

namespace ridge {

bool may_multiply_split() { return false; }

}  // namespace ridge

#endif
