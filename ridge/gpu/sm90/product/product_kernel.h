#pragma once

// The kernel behind products.cu, swiglu_products.cu and linear_products.cu: c[m, n] = a b by the
// pipeline of product_pipeline.h, f32 accumulation, and an epilogue that takes the accumulators of
// a tile. The two consumer warpgroups take tiles in turns: while one writes its tile, or computes
// with it, the other multiplies.

#include "ridge/gpu/sm90/product/product_pipeline.h"

namespace ridge::gpu::sm90 {

// Tiles are 128 x Columns of elements of T. `Slots`: how many boxes a warpgroup has to stage what
// it reads and writes besides.
template <int Stages, int Slots, class T = BFloat16, int Columns = 128,
          Pairs Neighbors = Pairs::along_n>
struct ProductConfig {
  using Element = T;
  static constexpr int rows = 128, columns = Columns, stages = Stages, slots = Slots;
  static constexpr bool along_m = Neighbors == Pairs::along_m;
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
      if (step > 0) release_to_cluster(&shared_.empty[before]);
      before = ring.stage;
    }
    pass_turn();  // what it waits for has been loaded: no barrier is a round ahead of it
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < Config::blocks; ++i) ptx::pin(d[i]);
    release_to_cluster(&shared_.empty[before]);
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
  run_pipeline<Config::stages, 1>(
      shared, &a, &b,
      [&] {
        for (auto& slots : shared.side)
          for (auto& warps : slots)
            for (std::uint64_t& barrier : warps) ptx::barrier_init(&barrier, 1);
      },
      [&] { produce_tiles<Config, Layout, Epilogue>(shared, order, &a, &b, out); },
      [&](int warpgroup) {
        ProductConsumer<Config, Layout, Epilogue>(shared, order, out, warpgroup).run();
        if (threadIdx.x % warp_threads == 0) ptx::store_wait<0>();
      });
}

template <class Config, class Layout, class Epilogue>
void launch_product(const CUtensorMap& a, const CUtensorMap& b,
                    const typename Epilogue::Arguments& out, const TileOrder& order,
                    int multiprocessors, cudaStream_t stream) {
  launch_clusters<ProductShared<Config>>(product_kernel<Config, Layout, Epilogue>, order.units(),
                                         multiprocessors, stream, a, b, out, order);
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
