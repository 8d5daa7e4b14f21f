// Products of f32 on the tensor cores: of operands in three bf16 components each
// (kernels/product/split_bf16.h).
//
// With a = a1 + a2 + a3 and b alike, from the largest component to the smallest, each at most 2^-7
// of the one before it, six of the nine products of components make up a b: a1 b1; a1 b2, a2 b1; a1
// b3, a2 b2, a3 b1. The rest is below 2^-22 of it, and has either sign.
//
// Tensor cores cut off what does not fit as they add to an accumulator. Over a long sum that would
// be a bias. So 64 terms are summed up there at a time, small products first, and these sums are
// added up in f32 by the vector units, which round.
//
// A block has a producer warp and two consumer warpgroups, which compute the upper and the lower
// half of a tile. The ring's slots hold one component of both operands for 64 of the inner
// dimension, in the order in which they are needed: component 1, 3, 2.

#include "ridge/gpu/kernels/product/split_bf16.h"
#include "ridge/gpu/sm90/product/product_pipeline.h"
#include "ridge/gpu/sm90/product/products.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int tile_extent = 128;
constexpr int tile_boxes = tile_extent / box_extent;
constexpr int operand_bytes = tile_boxes * Box::bytes;  // of a slot
constexpr int slots = 7;
constexpr int accumulators = tile_extent / 2;

template <Pairs Neighbors>
struct SplitConfig {
  static constexpr int rows = tile_extent;
  static constexpr bool along_m = Neighbors == Pairs::along_m;
};

struct SplitShared {
  alignas(1024) unsigned char a[slots][operand_bytes];
  unsigned char b[slots][operand_bytes];
  std::uint64_t full[slots], empty[slots];
};

struct SplitArguments {
  float* c;  // [parts, m, n]
  int m, n;
  bool accumulate;
  int parts;
};

// A tile's part of the inner dimension: 64 of it from step `first` to `last`.
struct Work {
  TileIndex tile;
  int part, first, last;
};

// Units are those of all tiles for the first part of the inner dimension, then for the next.
template <class Config>
__device__ Work work_at(const TileOrder& order, int parts, int unit, int rank) {
  const int part = unit / order.units();
  return {tile_at<Config>(order, unit % order.units(), rank), part, order.steps * part / parts,
          order.steps * (part + 1) / parts};
}

template <class Config, class Layout>
__device__ void produce_components(SplitShared& shared, const TileOrder& order,
                                   const CUtensorMap* a, const CUtensorMap* b, int parts) {
  Ring<slots> ring;
  const int rank = ptx::cluster_rank();
  for (int unit = first_unit(); unit < order.units() * parts; unit += unit_stride()) {
    const Work work = work_at<Config>(order, parts, unit, rank);
    for (int step = work.first; step < work.last; ++step)
#pragma unroll
      for (const int component : {0, 2, 1}) {
        std::uint64_t* const full = &shared.full[ring.stage];
        ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
        ptx::barrier_arrive_expect(full, 2 * operand_bytes);
        const int k = step * box_extent;
        load_operand<tile_boxes, !Layout::trans_a, !Config::along_m>(
            shared.a[ring.stage], a, full, rank, k,
            [&](int box) { return work.tile.m * tile_extent + box * box_extent; }, component);
        load_operand<tile_boxes, Layout::trans_b, Config::along_m>(
            shared.b[ring.stage], b, full, rank, k,
            [&](int box) { return work.tile.n * tile_extent + box * box_extent; }, component);
        ring.advance();
      }
  }
}

template <class Config, class Layout>
class SplitConsumer {
  using Sums = float[accumulators];

 public:
  __device__ SplitConsumer(SplitShared& shared, const TileOrder& order, const SplitArguments& out,
                           int warpgroup)
      : shared_(shared), order_(order), out_(out), warpgroup_(warpgroup) {}

  __device__ void run() {
    const int rank = ptx::cluster_rank();
    for (int unit = first_unit(); unit < order_.units() * out_.parts; unit += unit_stride()) {
      const Work work = work_at<Config>(order_, out_.parts, unit, rank);
      Sums sum;
#pragma unroll
      for (float& s : sum) s = 0;
      multiply(sum, work.last - work.first);
      write(sum, work);
    }
  }

 private:
  __device__ void release_slot(int slot) { release_to_cluster(&shared_.empty[slot]); }

  __device__ Ring<slots> next_slot() {
    const Ring<slots> slot = ring_;
    ring_.advance();
    return slot;
  }
  __device__ void wait_for(const Ring<slots>& slot) {
    ptx::barrier_wait(&shared_.full[slot.stage], slot.parity);
  }

  // d (+)= a's component in one slot times b's component in another.
  __device__ void issue(Sums& d, int a_slot, int b_slot, bool first = false) {
    const std::uint32_t a = ptx::shared_address(shared_.a[a_slot]);
    const std::uint32_t b = ptx::shared_address(shared_.b[b_slot]);
#pragma unroll
    for (int step = 0; step < box_extent / 16; ++step)
      ptx::wgmma<BFloat16, tile_extent, Layout::trans_a, !Layout::trans_b>(
          d, operand_step<!Layout::trans_a, tile_extent>(a, step, warpgroup_ * warpgroup_rows),
          operand_step<Layout::trans_b, tile_extent>(b, step, 0), !first || step != 0);
  }

  // Adds a finished sum of 64 terms, whose first component was in slot `one_`.
  __device__ void add(Sums& sum, Sums& d) {
    ptx::pin(d);
    release_slot(one_);
#pragma unroll
    for (int i = 0; i < accumulators; ++i) sum[i] += d[i];
  }

  // d = the next 64 terms, begun; `sum` += the 64 before them, once there is something to wait for.
  __device__ void next_terms(Sums& d, Sums& sum, Sums& before, bool is_first) {
    const Ring<slots> one = next_slot(), three = next_slot(), two = next_slot();
    wait_for(one);
    wait_for(three);
    ptx::wgmma_fence();
    issue(d, three.stage, one.stage, true);
    issue(d, one.stage, three.stage);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (!is_first) add(sum, before);
    wait_for(two);
    ptx::wgmma_fence();
    issue(d, two.stage, two.stage);
    issue(d, two.stage, one.stage);
    issue(d, one.stage, two.stage);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    release_slot(three.stage);
    ptx::wgmma_fence();
    issue(d, one.stage, one.stage);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    release_slot(two.stage);
    one_ = one.stage;
  }

  __device__ void multiply(Sums& sum, int steps) {
    if (steps == 0) return;
    Sums even, odd;
    int step = 0;
    for (; step + 1 < steps; step += 2) {
      next_terms(even, sum, odd, step == 0);
      next_terms(odd, sum, even, false);
    }
    if (step < steps) {
      next_terms(even, sum, odd, step == 0);
      ptx::wgmma_wait<0>();
      add(sum, even);
    } else {
      ptx::wgmma_wait<0>();
      add(sum, odd);
    }
  }

  // A quarter of a warp writes 32 bytes of a row.
  __device__ void write(const Sums& sum, const Work& work) {
    const int row = work.tile.m * tile_extent + warpgroup_ * warpgroup_rows + first_row();
    const int column = work.tile.n * tile_extent + first_column();
    float* const part = out_.c + static_cast<std::int64_t>(work.part) * out_.m * out_.n;
    const bool in_pairs = out_.n % 2 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      if (r >= out_.m) continue;
      float* const c = part + static_cast<std::int64_t>(r) * out_.n + column;
#pragma unroll
      for (int j = 0; j < tile_extent / 8; ++j) {
        const int left = out_.n - column - 8 * j;
        if (left <= 0) break;
        write_pair(c + 8 * j, sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1], in_pairs, left > 1);
      }
    }
  }
  __device__ void write_pair(float* c, float x, float y, bool in_pairs, bool both) {
    if (in_pairs) {
      float2 result = make_float2(x, y);
      if (out_.accumulate) {
        const float2 before = *reinterpret_cast<const float2*>(c);
        result = make_float2(before.x + x, before.y + y);
      }
      *reinterpret_cast<float2*>(c) = result;
      return;
    }
    c[0] = out_.accumulate ? c[0] + x : x;
    if (both) c[1] = out_.accumulate ? c[1] + y : y;
  }

  SplitShared& shared_;
  const TileOrder& order_;
  const SplitArguments& out_;
  const int warpgroup_;
  Ring<slots> ring_;
  int one_ = 0;
};

template <class Config, class Layout>
__global__ void __launch_bounds__(product_threads, 1)
    split_product_kernel(const __grid_constant__ CUtensorMap a,
                         const __grid_constant__ CUtensorMap b, const SplitArguments out,
                         const TileOrder order) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<SplitShared*>(memory);
  run_pipeline<slots, consumers>(
      shared, &a, &b, [] {},
      [&] { produce_components<Config, Layout>(shared, order, &a, &b, out.parts); },
      [&](int warpgroup) { SplitConsumer<Config, Layout>(shared, order, out, warpgroup).run(); });
}

template <Pairs Neighbors>
void run(const ProductShape& s, int parts, const void* a, const void* b, float* c,
         int multiprocessors, cudaStream_t stream) {
  using Config = SplitConfig<Neighbors>;
  const TileOrder order = TileOrder::of<Config>(s.m, s.n, s.k, tile_extent);
  const SplitArguments out{c, static_cast<int>(s.m), static_cast<int>(s.n),
                           s.accumulate && parts == 1, parts};
  dispatch_stored(s.trans_a, s.trans_b, [&]<class Layout>() {
    launch_clusters<SplitShared>(
        split_product_kernel<Config, Layout>, order.units() * parts, multiprocessors, stream,
        Layout::trans_a ? split_map(a, s.k, s.m) : split_map(a, s.m, s.k),
        Layout::trans_b ? split_map(b, s.n, s.k) : split_map(b, s.k, s.n), out, order);
  });
  check(last_error(), "a product of f32 in components");
}

// Where there is an odd number of columns of tiles, pairs of tiles had better lie along m.
Pairs pairs_of(const ProductShape& s) {
  const auto odd_tiles = [](std::int64_t extent) {
    return (extent + tile_extent - 1) / tile_extent % 2 != 0;
  };
  return odd_tiles(s.n) && !odd_tiles(s.m) ? Pairs::along_m : Pairs::along_n;
}

}  // namespace

SplitRounds split_product_rounds(const ProductShape& s, int multiprocessors) {
  constexpr int fewest_steps = 4;  // of a part
  const TileOrder order =
      pairs_of(s) == Pairs::along_m
          ? TileOrder::of<SplitConfig<Pairs::along_m>>(s.m, s.n, s.k, tile_extent)
          : TileOrder::of<SplitConfig<Pairs::along_n>>(s.m, s.n, s.k, tile_extent);
  const int clusters = multiprocessors / cluster_blocks;
  return {(order.units() + clusters - 1) / clusters,
          std::max(1, std::min(clusters / order.units(), order.steps / fewest_steps))};
}

void split_product(const ProductShape& s, int parts, const void* a, const void* b, float* c,
                   int multiprocessors, cudaStream_t stream) {
  if (pairs_of(s) == Pairs::along_m)
    run<Pairs::along_m>(s, parts, a, b, c, multiprocessors, stream);
  else
    run<Pairs::along_n>(s, parts, a, b, c, multiprocessors, stream);
}

}  // namespace ridge::gpu::sm90
