#pragma once

// What the kernels of flash attention share: loads of tiles of a head, arithmetic on rows of
// scores, and the order in which thread blocks go through tiles.

#include <cstdint>

#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/sm90/tile.h"

namespace ridge::gpu::sm90 {

// What scores of operands with a scale are multiplied with. Never 0: scores may be infinite.
__device__ inline float scale_of_scores(float scale_log2, const float* scale) {
  return fmaxf(scale_log2 * *scale * *scale, 0x1p-120f);
}

// Loads a tile whose first row is `row` of a head, for `full` to count its bytes.
template <class Tile>
__device__ inline void load_tile(unsigned char* to, const CUtensorMap* map, std::uint64_t* full,
                                 int row, int head, int batch) {
  for (int panel = 0; panel < Tile::panels; ++panel)
    ptx::load_box(to + panel * Tile::panel_bytes, map, full, panel * Tile::panel_columns, row, head,
                  batch);
}

// Rotates pairs of columns (2i, 2i + 1) of accumulators back by the angles of a table of (cos,
// sin), [seq, head_dim / 2]: the transpose of the rotary embedding. `row`: of the thread's first
// row.
template <int Count>
__device__ inline void rotate_back(float (&d)[Count], const float2* table, int row, int seq) {
  constexpr int head_dim = 2 * Count;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= seq) return;
    const float2* angles = table + (row + 8 * r) * (head_dim / 2) + first_column() / 2;
#pragma unroll
    for (int i = 2 * r; i < Count; i += 4) {
      const float2 angle = angles[i / 4 * 4];
      const float x = d[i], y = d[i + 1];
      d[i] = fmaf(x, angle.x, y * angle.y);
      d[i + 1] = fmaf(y, angle.x, -x * angle.y);
    }
  }
}

// Over the four threads that hold a row of accumulators.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// The tiles of work of all heads, `per_head` each, ranked from the longest to the shortest, dealt
// to blocks that stay. When lengths decrease evenly, `paired`, a longest and a shortest tile go to
// a block together, so that all pairs are equally long. Heads come one after another: what they
// read stays in the L2 cache. Every other round deals in reverse.
struct TileDeck {
  int per_head, heads;
  bool paired;

  __host__ __device__ int units_per_head() const { return paired ? (per_head + 1) / 2 : per_head; }
  __host__ __device__ int units() const { return units_per_head() * heads; }
};

// The tiles dealt to this block.
class BlockTiles {
 public:
  __device__ explicit BlockTiles(const TileDeck& deck) : deck_(deck) { deal(); }
  __device__ bool more() const { return unit_ < deck_.units(); }
  __device__ int head() const { return unit_ / deck_.units_per_head(); }
  __device__ int rank() const {
    const int first = unit_ % deck_.units_per_head();
    return second_ ? deck_.per_head - 1 - first : first;
  }
  __device__ void advance() {
    if (deck_.paired && !second_ && 2 * rank() + 1 != deck_.per_head) {
      second_ = true;
      return;
    }
    second_ = false;
    ++round_;
    deal();
  }

 private:
  __device__ void deal() {
    const int grid = gridDim.x, block = blockIdx.x;
    unit_ = round_ * grid + (round_ % 2 == 0 ? block : grid - 1 - block);
  }

  const TileDeck& deck_;
  int round_ = 0, unit_ = 0;
  bool second_ = false;
};

}  // namespace ridge::gpu::sm90
