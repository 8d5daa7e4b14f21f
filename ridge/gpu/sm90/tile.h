#pragma once

// Tiles of 16-bit elements in shared memory, how accumulators of a product are written to them, and
// rings of such tiles between a producer and its consumers.

#include <cstdint>

#include "ridge/gpu/sm90/ptx.h"
#include "ridge/gpu/sm90/warpgroup.h"
#include "ridge/gpu/sm90/wgmma.h"

namespace ridge::gpu::sm90 {

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

}  // namespace ridge::gpu::sm90
