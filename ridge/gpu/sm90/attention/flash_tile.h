#pragma once

// What the forward and backward kernels share: tiles of rows in shared memory, and how the
// accumulators of a product are written to them.

#include <cstdint>

#include "ridge/gpu/kernels/attention/flash.h"
#include "ridge/gpu/sm90/ptx.h"
#include "ridge/gpu/sm90/warpgroup.h"
#include "ridge/gpu/sm90/wgmma.h"

namespace ridge::gpu::sm90 {

// Calls function.template operator()<T>() for the element type of operands of 16 bits.
template <class F>
void with_element(const FlashShape& shape, const F& function) {
  with_element(shape.dtype, function);
}

// Rows x Columns elements of T, of 16 bits, in shared memory as the copy engine leaves them: panels
// of at most 64 columns one after another, in each panel its rows, swizzled.
template <class T, int Rows, int Columns>
struct Tile {
  using Element = T;
  static constexpr int panel_columns = Columns < 64 ? Columns : 64;
  static constexpr int panels = Columns / panel_columns;
  static constexpr int row_bytes = panel_columns * 2;
  static constexpr int panel_bytes = Rows * row_bytes;
  static constexpr int bytes = panels * panel_bytes;
  static constexpr int elements = Rows * Columns;

  // The operand whose inner dimension k runs along the columns: 16 columns from 16 * step on, rows
  // from `row` (a multiple of 8) on.
  __device__ static std::uint64_t along_columns(std::uint32_t tile, int step, int row = 0) {
    constexpr int steps = panel_columns / 16;
    return ptx::operand<row_bytes>(tile + step / steps * panel_bytes + row * row_bytes +
                                   step % steps * 32);
  }

  // The (transposed) operand whose inner dimension k runs along the rows: 16 rows from 16 * step
  // on, columns from `column` (a multiple of 8) on.
  __device__ static std::uint64_t along_rows(std::uint32_t tile, int step, int column = 0) {
    return ptx::operand<row_bytes>(tile + column / panel_columns * panel_bytes +
                                       step * 16 * row_bytes + column % panel_columns * 2,
                                   panel_bytes);
  }

  // The address of 16-byte chunk `chunk` of a row.
  __device__ static std::uint32_t chunk(std::uint32_t tile, int row, int chunk) {
    constexpr int chunks = panel_columns / 8;
    const int phase = row_bytes == 128 ? row & 7 : row >> 1 & 3;
    return tile + chunk / chunks * panel_bytes + row * row_bytes +
           (((chunk % chunks) ^ phase) << 4);
  }
};

// Packs 16 columns of accumulators (two groups of 8), from column 16 * step on, as an A operand of
// T.
template <class T, int Count>
__device__ inline void pack_step(std::uint32_t (&packed)[4], const float (&d)[Count], int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    packed[i] = ptx::pack<T>(d[8 * step + 2 * i], d[8 * step + 2 * i + 1]);
}

// Writes a warpgroup's 64 x (2 Count) accumulators, times a factor for each of the thread's two
// rows, to rows first_row... of a tile.
template <class Tile, int Count>
__device__ inline void store_accumulators(std::uint32_t tile, int first_row,
                                          const float (&d)[Count], float upper, float lower) {
  const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
  const int row = first_row + warp * 16 + (lane & 15);
#pragma unroll
  for (int step = 0; step < Count / 8; ++step)
    ptx::store_matrices(
        Tile::chunk(tile, row, 2 * step + (lane >> 4)),
        ptx::pack<typename Tile::Element>(d[8 * step] * upper, d[8 * step + 1] * upper),
        ptx::pack<typename Tile::Element>(d[8 * step + 2] * lower, d[8 * step + 3] * lower),
        ptx::pack<typename Tile::Element>(d[8 * step + 4] * upper, d[8 * step + 5] * upper),
        ptx::pack<typename Tile::Element>(d[8 * step + 6] * lower, d[8 * step + 7] * lower));
}

// Where a thread's accumulators begin: see wgmma.h.
__device__ inline int first_column() { return threadIdx.x % 4 * 2; }
__device__ inline int first_row() {
  return threadIdx.x / warp_threads % 4 * 16 + threadIdx.x % warp_threads / 4;
}

// How often a warp's release() arrives. compute-sanitizer's racecheck takes the arrival of one
// lane, after __syncwarp(), as that lane's alone, and what the others have read as unordered with
// what the producer writes next: for it, a build with RIDGE_RACECHECK lets each lane arrive for
// itself.
#ifdef RIDGE_RACECHECK
inline constexpr int warp_releases = warp_threads;
#else
inline constexpr int warp_releases = 1;
#endif
inline constexpr int warpgroup_releases = warpgroup_threads / warp_threads * warp_releases;

// What scores of operands with a scale are multiplied with. Never 0: scores may be infinite.
__device__ inline float scale_of_scores(float scale_log2, const float* scale) {
  return fmaxf(scale_log2 * *scale * *scale, 0x1p-120f);
}

// Writes the thread's two rows of a warpgroup's accumulators, times a factor for each, to f32
// memory: row i of `to` is at i * stride, those from `rows` on do not exist.
template <int Count>
__device__ inline void store_f32(float* to, std::int64_t stride, int row, int rows,
                                 const float (&d)[Count], float upper, float lower) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= rows) return;
    const float factor = r == 0 ? upper : lower;
    float* const out = to + (row + 8 * r) * stride + first_column();
#pragma unroll
    for (int i = 2 * r; i < Count; i += 4)
      *reinterpret_cast<float2*>(out + i / 4 * 8) = float2{d[i] * factor, d[i + 1] * factor};
  }
}

// Each warp of a consumer warpgroup tells the producer that it is done with a buffer.
__device__ inline void release(std::uint64_t* empty) {
  __syncwarp();  // what other lanes still read would be written over
  if (threadIdx.x % warp_threads < warp_releases) ptx::barrier_arrive(empty);
}

// Loads a tile whose first row is `row` of a head, for `full` to count its bytes.
template <class Tile>
__device__ inline void load_tile(unsigned char* to, const CUtensorMap* map, std::uint64_t* full,
                                 int row, int head, int batch) {
  for (int panel = 0; panel < Tile::panels; ++panel)
    ptx::load_box(to + panel * Tile::panel_bytes, map, full, panel * Tile::panel_columns, row, head,
                  batch);
}

// Turns pairs of columns (2i, 2i + 1) of accumulators back by the angles of a table of (cos, sin),
// [seq, head_dim / 2]: the transpose of the rotary embedding. `row`: of the thread's first row.
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

// A position in a ring of `Stages` shared-memory buffers, with the parity of its current round.
template <int Stages>
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

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
