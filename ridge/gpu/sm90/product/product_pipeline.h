#pragma once

// The tile pipeline of products on sm90: c[m, n] = a b, of operands whose elements have 16 bits.
//
// A thread block has a producer warp, which keeps the copy engine ahead by a ring of stages of 64
// of the inner dimension, and two consumer warpgroups. Thread blocks stay and go through the tiles.
// Two neighboring thread blocks are a cluster, whose tiles lie side by side, or one below the
// other: of the part of a, or of b, that both need, each loads half, for both.
//
// Convolutions have a pipeline of their own (conv/conv_pipeline.h), because the ring differs: there
// it takes residuals and results too, thread blocks have as few as one consumer and may be alone,
// and several fit a multiprocessor, where here one has all registers and shared memory.

#include <algorithm>
#include <cstdint>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/roles.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/tile.h"

namespace ridge::gpu::sm90 {

inline constexpr int consumers = 2;  // warpgroups
inline constexpr int cluster_blocks = 2;
inline constexpr int product_threads = (1 + consumers) * warpgroup_threads;

// 64 x 64 elements of 16 bits as the copy engine moves them.
using Box = Tile<BFloat16, box_extent, box_extent>;

// How operands are stored: see ProductShape.
template <bool TransA, bool TransB>
struct Stored {
  static constexpr bool trans_a = TransA, trans_b = TransB;
};

// How the two tiles of a cluster lie: along n, with their rows of a in common, or along m, with
// their columns of b in common, which suits products of few columns.
enum class Pairs : std::uint8_t { along_n, along_m };

// The order in which clusters go through the tiles, two at a time: down a group of rows of tiles
// (or of pairs of rows), column (or pair of columns) by column, so that what runs at the same time
// reads little of either operand.
struct TileOrder {
  static constexpr int group = 16;
  int rows = 0, columns = 0;  // of tiles, or pairs of them
  int steps = 0;              // of 64 of the inner dimension

  // `tile_columns`: how far along n tiles are apart.
  template <class Config>
  static TileOrder of(std::int64_t m, std::int64_t n, std::int64_t k, int tile_columns) {
    const auto parts = [](std::int64_t extent, int part) {
      return static_cast<int>((extent + part - 1) / part);
    };
    constexpr int down = Config::along_m ? cluster_blocks : 1;
    constexpr int across = Config::along_m ? 1 : cluster_blocks;
    return {parts(m, Config::rows * down), parts(n, tile_columns * across), parts(k, box_extent)};
  }
  __host__ __device__ int units() const { return rows * columns; }
};

struct TileIndex {
  int m, n;
};

// Where a box of a matrix begins.
struct BoxPlace {
  int row, column;
};

template <class Config>
__device__ TileIndex tile_at(const TileOrder& order, int unit, int rank) {
  const int per_group = TileOrder::group * order.columns;
  const int top = unit / per_group * TileOrder::group;
  const int rows = min(TileOrder::group, order.rows - top);
  const int within = unit % per_group;
  const int row = top + within % rows, column = within / rows;
  if constexpr (Config::along_m) return {cluster_blocks * row + rank, column};
  return {row, cluster_blocks * column + rank};
}

// The units of this thread block's cluster.
__device__ inline int first_unit() { return static_cast<int>(blockIdx.x) / cluster_blocks; }
__device__ inline int unit_stride() { return static_cast<int>(gridDim.x) / cluster_blocks; }

// Loads a stage of an operand, whose box `box` begins at start(box) along m or n, and at `outer`
// along further dimensions of its map. What the thread blocks of the cluster have in common they
// load in turns, each time for both.
template <int Boxes, bool AlongK, bool Common, class Start, class... Outer>
__device__ void load_operand(unsigned char* stage, const CUtensorMap* map, std::uint64_t* full,
                             int rank, int k, const Start& start, Outer... outer) {
#pragma unroll
  for (int box = 0; box < Boxes; ++box) {
    unsigned char* const to = stage + box * Box::bytes;
    const int along = start(box), c0 = AlongK ? k : along, c1 = AlongK ? along : k;
    if constexpr (!Common)
      ptx::load_box(to, map, full, c0, c1, outer...);
    else if (box % cluster_blocks == rank)
      ptx::load_box_to((1 << cluster_blocks) - 1, to, map, full, c0, c1, outer...);
  }
}

// What wgmma reads: 16 of the inner dimension, from row or column `start` of the tile on.
template <bool AlongK, int Extent>
__device__ std::uint64_t operand_step(std::uint32_t stage, int step, int start) {
  if constexpr (AlongK)
    return Tile<BFloat16, Extent, box_extent>::along_columns(stage, step, start);
  return Tile<BFloat16, box_extent, Extent>::along_rows(stage, step, start);
}
// How far that is, in bytes, from the beginning of the tile.
template <bool AlongK, int Extent>
__device__ std::uint32_t operand_offset(int step, int start) {
  return ptx::operand_address(operand_step<AlongK, Extent>(0, step, start));
}

// Both thread blocks of the cluster may load into the stage again.
__device__ inline void release_to_cluster(std::uint64_t* empty) {
  const int lane = threadIdx.x % warp_threads;
  if (lane < cluster_blocks) ptx::barrier_arrive_at(empty, lane);
}

// The kernel: produce() by a thread of the producer warp, beside consume(warpgroup) by both
// consumers. `Readers` of these release each stage. init_barriers() sets up what barriers there are
// besides those of the stages.
template <int Stages, int Readers, class Shared, class Init, class Produce, class Consume>
__device__ void run_pipeline(Shared& shared, const CUtensorMap* a, const CUtensorMap* b,
                             const Init& init_barriers, const Produce& produce,
                             const Consume& consume) {
  constexpr int releases = cluster_blocks * Readers * warpgroup_threads / warp_threads;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], releases);
    }
    init_barriers();
    ptx::barrier_init_fence();
    ptx::prefetch_map(a);
    ptx::prefetch_map(b);
  }
  ptx::cluster_sync();
  wait_for_previous();
  let_next_begin();
  take_roles<40, 232>(produce, consume);
  ptx::cluster_sync();  // the other thread block may still arrive at barriers here
}

// Enqueues such a kernel for so many units of work. The caller checks last_error().
template <class Shared, class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), int units, int multiprocessors,
                     cudaStream_t stream, const Arguments&... arguments) {
  static_assert(sizeof(Shared) <= sm90_shared_per_block);
  allow_shared_memory(kernel, sizeof(Shared));
  const int clusters = std::min(multiprocessors / cluster_blocks, units);
  launch_early(kernel, dim3(static_cast<unsigned>(clusters * cluster_blocks)), cluster_blocks,
               product_threads, sizeof(Shared), stream, arguments...);
}

// Calls function.template operator()<Stored<..>>() for how the operands of a product are stored.
template <class F>
void dispatch_stored(bool trans_a, bool trans_b, const F& function) {
  if (trans_a && trans_b) return function.template operator()<Stored<true, true>>();
  if (trans_a) return function.template operator()<Stored<true, false>>();
  if (trans_b) return function.template operator()<Stored<false, true>>();
  return function.template operator()<Stored<false, false>>();
}

}  // namespace ridge::gpu::sm90
