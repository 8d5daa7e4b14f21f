#pragma once

// The kernel behind products.cu, swiglu_products.cu and linear_products.cu: c[m, n] = a b by
// Hopper's warpgroup product, operands of 16 bits, f32 accumulation, and an epilogue that takes the
// accumulators of a tile.
//
// A block has a producer warp, which keeps the copy engine ahead by a ring of stages of 64 of the
// inner dimension, and two consumer warpgroups, which take tiles in turns: while one writes its
// tile, or computes with it, the other multiplies. Blocks stay and go through the tiles. Two
// neighbouring blocks are a cluster, whose tiles lie side by side, or one below the other: of the
// part of a, or of b, that both need, each loads half, for both.

#include <algorithm>
#include <cstdint>

#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"

namespace ridge::gpu::sm90 {

inline constexpr int consumers = 2;
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

// Tiles are 128 x Columns of elements of T. `Slots`: how many boxes a warpgroup has to stage what
// it reads and writes besides.
template <int Stages, int Slots, class T = BFloat16, int Columns = 128,
          Pairs Neighbours = Pairs::along_n>
struct ProductConfig {
  using Element = T;
  static constexpr int rows = 128, columns = Columns, stages = Stages, slots = Slots;
  static constexpr bool along_m = Neighbours == Pairs::along_m;
  static constexpr int blocks = rows / warpgroup_rows, panels = columns / box_extent;
  static constexpr int a_boxes = rows / box_extent, b_boxes = panels;
  static constexpr int stage_bytes = (a_boxes + b_boxes) * Box::bytes;

  using Accumulators = float[blocks][columns / 2];
};

template <class Config>
struct ProductShared {
  alignas(1024) unsigned char a[Config::stages][Config::a_boxes * Box::bytes];
  unsigned char b[Config::stages][Config::b_boxes * Box::bytes];
  unsigned char slots[consumers][Config::slots][Box::bytes];
  // What an epilogue has for pairs of columns, of two tiles in turns.
  std::uint32_t pairs[consumers][2][Config::columns / 2];
  std::uint64_t full[Config::stages], empty[Config::stages];
  std::uint64_t side[consumers][Config::slots]
                    [warpgroup_warps];  // for what an epilogue's warps load
};

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

// The units of this block's cluster.
__device__ inline int first_unit() { return static_cast<int>(blockIdx.x) / cluster_blocks; }
__device__ inline int unit_stride() { return static_cast<int>(gridDim.x) / cluster_blocks; }

// Loads a stage of an operand, whose box `box` begins at start(box) along m or n. What the blocks
// of the cluster have in common they load in turns, each time for both.
template <int Boxes, bool AlongK, bool Common, class Start>
__device__ void load_operand(unsigned char* stage, const CUtensorMap* map, std::uint64_t* full,
                             int rank, int k, const Start& start) {
#pragma unroll
  for (int box = 0; box < Boxes; ++box) {
    unsigned char* const to = stage + box * Box::bytes;
    const int along = start(box), c0 = AlongK ? k : along, c1 = AlongK ? along : k;
    if constexpr (!Common)
      ptx::load_box(to, map, full, c0, c1);
    else if (box % cluster_blocks == rank)
      ptx::load_box_to((1 << cluster_blocks) - 1, to, map, full, c0, c1);
  }
}

template <class Config, class Layout, class Epilogue>
__device__ void produce_tiles(ProductShared<Config>& shared, const TileOrder& order,
                              const CUtensorMap* a, const CUtensorMap* b,
                              const typename Epilogue::Arguments& out) {
  Ring<Config::stages> ring;
  const int rank = ptx::cluster_rank();
  for (int unit = first_unit(); unit < order.units(); unit += unit_stride()) {
    const TileIndex tile = tile_at<Config>(order, unit, rank);
    for (int step = 0; step < order.steps; ++step, ring.advance()) {
      std::uint64_t* full = &shared.full[ring.stage];
      ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      ptx::barrier_arrive_expect(full, Config::stage_bytes);
      const int k = step * box_extent;
      load_operand<Config::a_boxes, !Layout::trans_a, !Config::along_m>(
          shared.a[ring.stage], a, full, rank, k,
          [&](int box) { return tile.m * Config::rows + box * box_extent; });
      load_operand<Config::b_boxes, Layout::trans_b, Config::along_m>(
          shared.b[ring.stage], b, full, rank, k,
          [&](int box) { return Epilogue::b_start(out, tile.n, box); });
    }
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

template <class Config, class Layout, class Epilogue>
class ProductConsumer {
 public:
  __device__ ProductConsumer(ProductShared<Config>& shared, const TileOrder& order,
                             const typename Epilogue::Arguments& out, int warpgroup)
      : shared_(shared),
        order_(order),
        out_(out),
        warpgroup_(warpgroup),
        a_(operand_step<!Layout::trans_a, Config::rows>(ptx::shared_address(shared.a), 0, 0)),
        b_(operand_step<Layout::trans_b, Config::columns>(ptx::shared_address(shared.b), 0, 0)) {}

  __device__ void run() {
    const int rank = ptx::cluster_rank();
    int tiles = 0;  // this block's before this one
    if (warpgroup_ == consumers - 1) pass_turn();
    Epilogue epilogue(shared_, out_, warpgroup_);
    for (int unit = first_unit(); unit < order_.units(); unit += unit_stride(), ++tiles) {
      if (tiles % consumers != warpgroup_) continue;
      const TileIndex tile = tile_at<Config>(order_, unit, rank);
      const int row = tile.m * Config::rows;
      epilogue.begin(row, tile.n);
      typename Config::Accumulators d;
      wait_turn();
      multiply(d, tiles * order_.steps);
      epilogue.write(d, row, tile.n);
    }
  }

 private:
  __device__ void wait_turn() { ptx::named_sync(1 + warpgroup_, consumers * warpgroup_threads); }
  __device__ void pass_turn() {
    ptx::named_arrive(1 + (warpgroup_ + 1) % consumers, consumers * warpgroup_threads);
  }

  // Both blocks of the cluster may load into the stage again.
  __device__ void release_stage(int stage) {
    const int lane = threadIdx.x % warp_threads;
    if (lane < cluster_blocks) ptx::barrier_arrive_at(&shared_.empty[stage], lane);
  }

  __device__ void issue(typename Config::Accumulators& d, int stage, bool first) {
    const std::uint64_t a = ptx::operand_at(a_, stage * (Config::a_boxes * Box::bytes));
    const std::uint64_t b = ptx::operand_at(b_, stage * (Config::b_boxes * Box::bytes));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < box_extent / 16; ++step)
#pragma unroll
      for (int i = 0; i < Config::blocks; ++i)
        ptx::wgmma<typename Config::Element, Config::columns, Layout::trans_a, !Layout::trans_b>(
            d[i],
            ptx::operand_at(
                a, operand_offset<!Layout::trans_a, Config::rows>(step, i * warpgroup_rows)),
            ptx::operand_at(b, operand_offset<Layout::trans_b, Config::columns>(step, 0)),
            !first || step != 0);
    ptx::wgmma_commit();
  }

  // The tile's product, from stages that are the block's `fill`-th and following.
  __device__ void multiply(typename Config::Accumulators& d, int fill) {
    Ring<Config::stages> ring{fill % Config::stages,
                              static_cast<std::uint32_t>(fill / Config::stages % 2)};
    int before = 0;
    for (int step = 0; step < order_.steps; ++step, ring.advance()) {
      ptx::barrier_wait(&shared_.full[ring.stage], ring.parity);
      issue(d, ring.stage, step == 0);
      ptx::wgmma_wait<1>();
      if (step > 0) release_stage(before);
      before = ring.stage;
    }
    pass_turn();  // what it waits for has been loaded: no barrier is a round ahead of it
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < Config::blocks; ++i) ptx::pin(d[i]);
    release_stage(before);
  }

  ProductShared<Config>& shared_;
  const TileOrder& order_;
  const typename Epilogue::Arguments& out_;
  const int warpgroup_;
  const std::uint64_t a_, b_;  // of the first stage
};

template <class Config, class Layout, class Epilogue>
__global__ void __launch_bounds__(product_threads, 1)
    product_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                   const __grid_constant__ typename Epilogue::Arguments out,
                   const TileOrder order) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<ProductShared<Config>*>(memory);
  constexpr int releases = cluster_blocks * warpgroup_threads / warp_threads;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::stages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], releases);
    }
    for (auto& slots : shared.side)
      for (auto& warps : slots)
        for (std::uint64_t& barrier : warps) ptx::barrier_init(&barrier, 1);
    ptx::barrier_init_fence();
    ptx::prefetch_map(&a);
    ptx::prefetch_map(&b);
  }
  ptx::cluster_sync();
  wait_for_previous();
  let_next_begin();
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
  if (warpgroup == 0) {
    ptx::fewer_registers<40>();
    if (threadIdx.x < warp_threads && ptx::elect_one())
      produce_tiles<Config, Layout, Epilogue>(shared, order, &a, &b, out);
  } else {
    ptx::more_registers<232>();
    ProductConsumer<Config, Layout, Epilogue>(shared, order, out, warpgroup - 1).run();
    if (threadIdx.x % warp_threads == 0) ptx::store_wait<0>();
  }
  ptx::cluster_sync();  // the other block may still arrive at barriers here
}

template <class Config, class Layout, class Epilogue>
void launch_product(const CUtensorMap& a, const CUtensorMap& b,
                    const typename Epilogue::Arguments& out, const TileOrder& order,
                    int multiprocessors, cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(ProductShared<Config>);
  static_assert(bytes <= 232448);
  const auto kernel = product_kernel<Config, Layout, Epilogue>;
  allow_shared_memory(kernel, bytes);
  const int clusters = std::min(multiprocessors / cluster_blocks, order.units());
  launch_early(kernel, dim3(static_cast<unsigned>(clusters * cluster_blocks)), cluster_blocks,
               product_threads, bytes, stream, a, b, out, order);
  check(last_error(), "a product");
}

// Stages a warpgroup's results in its slots and has the copy engine write them, while the next are
// being made: each warp its own 16 rows, so that none waits for another.
template <class Config>
class BoxWriter {
 public:
  __device__ BoxWriter(ProductShared<Config>& shared, int warpgroup)
      : shared_(shared), warpgroup_(warpgroup) {}

  // Boxes of 64 x 64 at place(box).row and .column, as many at once as divide the slots; maps are
  // of boxes of warp_rows. word(box, j, h): the elements of columns 8 j + first_column() and the
  // next, row first_row() + 8 h, of a box.
  template <int Boxes, class Place, class Word>
  __device__ void write(const CUtensorMap* map, const Place& place, const Word& word) {
    static_assert(Config::slots % Boxes == 0);
    const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
    if (lane == 0) ptx::store_wait_read<Config::slots / Boxes - 1>();
    __syncwarp();
#pragma unroll
    for (int box = 0; box < Boxes; ++box) {
      const std::uint32_t address = ptx::shared_address(shared_.slots[warpgroup_][next_ + box]);
#pragma unroll
      for (int j = 0; j < 8; j += 2)
        ptx::store_matrices(Box::chunk(address, warp * warp_rows + (lane & 15), j + (lane >> 4)),
                            word(box, j, 0), word(box, j, 1), word(box, j + 1, 0),
                            word(box, j + 1, 1));
    }
    ptx::fence_shared_for_async();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
      for (int box = 0; box < Boxes; ++box)
        ptx::store_box(
            map, shared_.slots[warpgroup_][next_ + box] + warp * (Box::bytes / warpgroup_warps),
            place(box).column, place(box).row + warp * warp_rows);
      ptx::store_commit();
    }
    next_ = next_ + Boxes == Config::slots ? 0 : next_ + Boxes;
  }

 private:
  ProductShared<Config>& shared_;
  const int warpgroup_;
  int next_ = 0;
};

}  // namespace ridge::gpu::sm90
