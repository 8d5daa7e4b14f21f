#pragma once

// The tile pipeline of conv.cu and int8_conv.cu: a convolution of images with channels last as a
// product, sum[m, o] = sum over k of windows[m, k] weight[o, k], where m counts the pixels of all
// results and k the elements (r, s, c) of a window. The copy engine gathers windows on the way into
// shared memory; none are stored.
//
// A thread block has a producer warp, which keeps the copy engine ahead by a ring of stages, and
// one or two consumer warpgroups, which multiply 64 rows of a tile each. A stage takes `depth`
// channels of one element of the windows, and as much of the weight. When all are summed, further
// stages bring the residual and take the results away: what a tile ends with travels through the
// ring like what it begins with, so that the next tile's operands follow close behind. Thread
// blocks stay and go through the tiles, along the channels of the result first: what neighbors
// read at the same time are the same pixels.
//
// Where the L2 cache is what limits, two thread blocks with neighboring tiles are a cluster: each
// loads half of the weight that both need, for both.
//
// For few pixels of many channels a cluster of thread blocks shares a tile, each sums a part of k,
// and each finishes a part of the rows, with what it reads from the others' shared memory: always
// the same sums in the same order.
//
// The copy engine and the swizzle know only bytes. Here they move words of 16 bits, one element of
// 16 bits or two of s8: channels of the image and `depth` are counted in words.
//
// Plain products have a pipeline of their own (product/product_pipeline.h): their tiles always come
// in pairs that share an operand, operands may be stored transposed, and epilogues run beside the
// product of the other warpgroup, from memory that is not part of the ring.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/tile.h"
#include "ridge/ops/epilogue.h"
#include "ridge/ops/image.h"

namespace ridge::gpu::sm90 {

inline constexpr int pair_blocks = 2, most_parts = 8;

// How the thread blocks of a cluster work together.
enum class Sharing : std::uint8_t { none, weight, tile };

// Tiles of Rows x Columns results of type Result; words of type Word; sums of type Sum.
template <class Word, class Result, class Sum, int Rows, int Columns, int Depth, int Stages,
          int BlocksPerSm, Sharing How>
struct ConvConfig {
  using Out = Result;
  static constexpr int rows = Rows, columns = Columns, depth = Depth, stages = Stages;
  static constexpr int blocks_per_sm = BlocksPerSm;
  static constexpr bool split = How == Sharing::tile, paired = How == Sharing::weight;
  static constexpr int consumers = rows / warpgroup_rows;
  static constexpr int threads = consumers * warpgroup_threads + warp_threads;

  using A = Tile<Word, rows, depth>;
  using B = Tile<Word, columns, depth>;
  static constexpr int load_bytes = A::bytes + B::bytes;
  // Results leave in boxes, one for each warpgroup and panel of columns.
  static constexpr int panel_columns = columns % 64 == 0 ? 64 : 32;
  static constexpr int words_of(int results) {
    return results * static_cast<int>(sizeof(Out)) / static_cast<int>(sizeof(Word));
  }
  using Box = Tile<Word, warpgroup_rows, words_of(panel_columns)>;
  static constexpr int panels = columns / panel_columns;
  static constexpr int panel_bytes = consumers * Box::bytes;
  static constexpr int stage_bytes = load_bytes > panel_bytes ? load_bytes : panel_bytes;
  static constexpr int stage_panels = stage_bytes / panel_bytes;
  static constexpr int last_steps = split ? 0 : (panels + stage_panels - 1) / stage_panels;
  // One product's, of which a tile of more columns takes several.
  static constexpr int product_columns = columns < 128 ? columns : 128;
  static constexpr int products = columns / product_columns;

  // From row to row of partial sums, which so begin in other banks.
  static constexpr int partial_stride = columns + 8;
  static_assert(!split || rows * partial_stride * 4 <= stages * stage_bytes);
  static_assert(stage_bytes % 1024 == 0);

  using ProductSums = Sum[product_columns / 2];
  using Accumulators = ProductSums[products];
};

template <class C>
struct ConvShared {
  alignas(1024) unsigned char stage[C::stages][C::stage_bytes];
  std::uint64_t full[C::stages], empty[C::stages];
};

struct ConvArguments {
  CUtensorMap x, weight, residual, y;
  // For those that do not read and write by the copy engine.
  const void* residual_data;
  void* y_data;
  Epilogue epilogue;
  bool flat;                // x is a matrix of pixels: windows are pixels
  int tiles, tile_columns;  // for pairs of thread blocks, of pairs of tiles
  int kernel[2], stride[2], padding[2], dilation[2];
  int out_h, out_w, channels;  // of the result
  std::int64_t pixels;
  int channel_steps, steps;  // of a tap, of all
};

// Where a tile begins; of a pair, this thread block's.
struct ConvPlace {
  int pixel, channel;
};

template <class C>
__device__ ConvPlace place_of(const ConvArguments& a, int tile) {
  int row = tile / a.tile_columns;
  if constexpr (C::paired) row = pair_blocks * row + ptx::cluster_rank();
  return {row * C::rows, tile % a.tile_columns * C::columns};
}

// The thread blocks that have the same tiles.
template <class C>
__device__ int cluster_blocks_of(const ConvArguments& a) {
  return C::split ? static_cast<int>(gridDim.x) / a.tiles : C::paired ? pair_blocks : 1;
}

template <class C>
__device__ int first_tile(const ConvArguments& a) {
  return static_cast<int>(blockIdx.x) / cluster_blocks_of<C>(a);
}

// Calls f(first pixel, first channel) for the tiles of this thread block.
template <class C, class F>
__device__ void each_tile(const ConvArguments& a, const F& f) {
  const auto call = [&](int tile) {
    const ConvPlace place = place_of<C>(a, tile);
    f(place.pixel, place.channel);
  };
  int unit = first_tile<C>(a);
  if constexpr (C::split) {
    call(unit);
  } else {
    // A pair does as many tiles in both thread blocks: what lies beyond the last pixel is zero and
    // not written. Each round deals one further: else a thread block could have the last columns,
    // which may be few, in all of them.
    const int units = static_cast<int>(gridDim.x) / cluster_blocks_of<C>(a);
    for (int begin = 0; begin < a.tiles; begin += units) {
      if (begin + unit < a.tiles) call(begin + unit);
      unit = unit + 1 == units ? 0 : unit + 1;
    }
  }
}

// The steps of a tile that a thread block sums.
struct ConvSteps {
  int first, end;
};

template <class C>
__device__ ConvSteps own_steps(const ConvArguments& a) {
  if constexpr (!C::split) return {0, a.steps};
  const int parts = static_cast<int>(gridDim.x) / a.tiles, rank = ptx::cluster_rank();
  return {a.steps * rank / parts, a.steps * (rank + 1) / parts};
}

// Asks for the weight of the first tile, which no image has to wait for; thread blocks with the
// same columns share that out. Only as far as the L2 cache: should the kernel before have yet to
// write it, what is loaded later is right.
template <class C>
__device__ void prefetch_weight(const ConvArguments& a) {
  const ConvSteps steps = own_steps<C>(a);
  const ConvPlace place = place_of<C>(a, first_tile<C>(a));
  const int tile_rows = a.tiles / a.tile_columns * (C::paired ? pair_blocks : 1);
  for (int step = steps.first + place.pixel / C::rows; step < steps.end; step += tile_rows)
    ptx::prefetch_box(&a.weight, step % a.channel_steps * C::depth, step / a.channel_steps,
                      place.channel);
}

// Loads columns of the weight from `channel` on, of a pair of thread blocks each half for both.
template <class C>
__device__ void load_weight(unsigned char* to, const ConvArguments& a, std::uint64_t* full, int c,
                            int tap, int channel) {
  if constexpr (C::paired) {
    constexpr int half = C::columns / pair_blocks;
    const int rank = ptx::cluster_rank();
    ptx::load_box_to((1 << pair_blocks) - 1, to + rank * (C::B::bytes / 2), &a.weight, full,
                     c * C::depth, tap, channel + rank * half);
  } else {
    ptx::load_box(to, &a.weight, full, c * C::depth, tap, channel);
  }
}

// Loads what a tile is multiplied of, step by step, each into a stage of its own: of the windows of
// the results from `pixel` on, C::depth channels of one of their elements; behind these as many of
// the weight.
template <class C>
__device__ void load_operands(ConvShared<C>& shared, const ConvArguments& a, Ring<C::stages>& ring,
                              int pixel, int channel) {
  const ConvSteps steps = own_steps<C>(a);
  const int line = pixel / a.out_w, image = line / a.out_h;
  const int column = (pixel - line * a.out_w) * a.stride[1] - a.padding[1];
  const int row = (line - image * a.out_h) * a.stride[0] - a.padding[0];
  int tap = steps.first / a.channel_steps, c = steps.first - tap * a.channel_steps;
  int r = tap / a.kernel[1], s = tap - r * a.kernel[1];
  for (int step = steps.first; step < steps.end; ++step, ring.advance()) {
    std::uint64_t* full = &shared.full[ring.stage];
    unsigned char* to = shared.stage[ring.stage];
    ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ptx::barrier_arrive_expect(full, C::load_bytes);
    if (a.flat)
      ptx::load_box(to, &a.x, full, c * C::depth, pixel);
    else
      ptx::load_windows(to, &a.x, full, c * C::depth, column, row, image,
                        static_cast<std::uint16_t>(s * a.dilation[1]),
                        static_cast<std::uint16_t>(r * a.dilation[0]));
    load_weight<C>(to + C::A::bytes, a, full, c, tap, channel);
    if (++c < a.channel_steps) continue;
    c = 0;
    ++tap;
    if (++s < a.kernel[1]) continue;
    s = 0;
    ++r;
  }
}

// Loads the residual's part of a tile that leaves through stage `last` of those behind the sums.
template <class C>
__device__ void load_residual(ConvShared<C>& shared, const ConvArguments& a, int stage, int last,
                              int pixel, int channel) {
  std::uint64_t* full = &shared.full[stage];
  if (a.residual_data == nullptr) {
    ptx::barrier_arrive(full);
    return;
  }
  const int first = last * C::stage_panels, end = min(first + C::stage_panels, C::panels);
  ptx::barrier_arrive_expect(full, (end - first) * C::panel_bytes);
  for (int panel = first; panel < end; ++panel)
    for (int w = 0; w < C::consumers; ++w)
      ptx::load_box(shared.stage[stage] + (panel - first) * C::panel_bytes + w * C::Box::bytes,
                    &a.residual, full, C::words_of(channel + panel * C::panel_columns),
                    pixel + w * warpgroup_rows);
}

template <class C>
__device__ void produce(ConvShared<C>& shared, const ConvArguments& a) {
  Ring<C::stages> ring;
  each_tile<C>(a, [&](int pixel, int channel) {
    load_operands<C>(shared, a, ring, pixel, channel);
    for (int last = 0; last < C::last_steps; ++last, ring.advance()) {
      ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      load_residual<C>(shared, a, ring.stage, last, pixel, channel);
    }
  });
}

// What one consumer warpgroup does, but for what becomes of the sums.
template <class C>
class ConvConsumer {
 public:
  __device__ ConvConsumer(ConvShared<C>& shared, const ConvArguments& a, int warpgroup)
      : shared_(shared), a_(a), warpgroup_(warpgroup) {}

 protected:
  using Box = typename C::Box;

  __device__ static int thread() { return static_cast<int>(threadIdx.x) % warpgroup_threads; }
  __device__ static bool leads() { return thread() == 0; }
  __device__ void sync() const { ptx::named_sync(1 + warpgroup_, warpgroup_threads); }

  // The tile's sums, by C::multiply(d, a, b, accumulate) for 16 words of the inner dimension.
  __device__ void multiply(typename C::Accumulators& d) {
    const ConvSteps steps = own_steps<C>(a_);
    int before = 0;
    for (int step = steps.first; step < steps.end; ++step, ring_.advance()) {
      ptx::barrier_wait(&shared_.full[ring_.stage], ring_.parity);
      const std::uint32_t a = ptx::shared_address(shared_.stage[ring_.stage]);
      const std::uint32_t b = a + C::A::bytes;
      ptx::wgmma_fence();
#pragma unroll
      for (int part = 0; part < C::depth / 16; ++part)
#pragma unroll
        for (int p = 0; p < C::products; ++p)
          C::multiply(d[p], C::A::along_columns(a, part, warpgroup_ * warpgroup_rows),
                      C::B::along_columns(b, part, p * C::product_columns),
                      step != steps.first || part != 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (step != steps.first) release_stage(before);
      before = ring_.stage;
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int p = 0; p < C::products; ++p) ptx::pin(d[p]);
    if (steps.first != steps.end) release_stage(before);
  }

  // Through the ring: where the residual came, the result leaves. write_panel(panel, box, channel)
  // leaves the results of a panel, whose first is `channel`, in its box.
  template <class WritePanel>
  __device__ void finish(int pixel, int channel, const WritePanel& write_panel) {
#pragma unroll
    for (int last = 0; last < C::last_steps; ++last, ring_.advance()) {
      ptx::barrier_wait(&shared_.full[ring_.stage], ring_.parity);
      const int first = last * C::stage_panels;
#pragma unroll
      for (int panel = first; panel < first + C::stage_panels && panel < C::panels; ++panel)
        write_panel(panel, box_of(panel - first), channel + panel * C::panel_columns);
      ptx::fence_shared_for_async();
      sync();
      if (leads()) {
#pragma unroll
        for (int panel = first; panel < first + C::stage_panels && panel < C::panels; ++panel)
          if (const int column = channel + panel * C::panel_columns; column < a_.channels)
            ptx::store_box(&a_.y, box_of(panel - first), C::words_of(column),
                           pixel + warpgroup_ * warpgroup_rows);
        ptx::store_commit();
        ptx::store_wait_read<0>();
      }
      release_stage(ring_.stage);
    }
  }

  // Waits until all results have left.
  __device__ static void drain() {
    if constexpr (!C::split)
      if (leads()) ptx::store_wait<0>();
  }

  // Leaves this thread block's sums of a tile in its shared memory, for the cluster to read:
  // rows of C::partial_stride. cluster_sync() comes after it.
  template <class Sum, class Pair>
  __device__ Sum* store_partials(const typename C::Accumulators& d) {
    static_assert(C::consumers == 1);
    sync();  // no warp's product reads any more what the sums are written over
    auto* const partial = reinterpret_cast<Sum*>(shared_.stage);
#pragma unroll
    for (int p = 0; p < C::products; ++p)
#pragma unroll
      for (int i = 0; i < C::product_columns / 2; i += 2) {
        const int row = warpgroup_ * warpgroup_rows + first_row() + i / 2 % 2 * 8;
        const int column = p * C::product_columns + i / 4 * 8 + first_column();
        *reinterpret_cast<Pair*>(partial + row * C::partial_stride + column) =
            Pair{d[p][i], d[p][i + 1]};
      }
    return partial;
  }

  ConvShared<C>& shared_;
  const ConvArguments& a_;
  const int warpgroup_;
  Ring<C::stages> ring_;

 private:
  __device__ unsigned char* box_of(int panel) const {
    return shared_.stage[ring_.stage] + panel * C::panel_bytes + warpgroup_ * Box::bytes;
  }
  // Whoever loads into it may do so again.
  __device__ void release_stage(int stage) {
    if constexpr (C::paired) {
      __syncwarp();  // what other lanes still read would be written over
      const int lane = threadIdx.x % warp_threads;
      if (lane < pair_blocks) ptx::barrier_arrive_at(&shared_.empty[stage], lane);
    } else {
      release(&shared_.empty[stage]);
    }
  }
};

// The kernel: Consumer(shared, a, warpgroup).run() for each consumer warpgroup, beside the
// producer.
template <class C, class Consumer, class Shared, class Arguments>
__device__ void run_pipeline(Shared& shared, const Arguments& a) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::stages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i],
                        C::consumers * (C::paired ? pair_blocks * warpgroup_threads / warp_threads
                                                  : warpgroup_releases));
    }
    ptx::barrier_init_fence();
    ptx::prefetch_map(&a.x);
    ptx::prefetch_map(&a.weight);
    ptx::prefetch_map(&a.residual);
    ptx::prefetch_map(&a.y);
  }
  if constexpr (C::paired)
    ptx::cluster_sync();
  else
    __syncthreads();
  const int warpgroup =
      __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / warpgroup_threads, 0);
  if constexpr (C::prefetches_weight) {
    if (warpgroup == C::consumers && ptx::elect_one()) prefetch_weight<C>(a);
    __syncwarp();
  }
  wait_for_previous();
  let_next_begin();
  if (warpgroup == C::consumers) {
    if (ptx::elect_one()) produce<C>(shared, a);
    __syncwarp();
    if constexpr (C::split) ptx::cluster_sync();  // of the partial sums
  } else {
    Consumer(shared, a, warpgroup).run();
  }
  // Others may still read this block's sums, or arrive at its barriers.
  if constexpr (C::split || C::paired) ptx::cluster_sync();
}

// `split`: of how many thread blocks a cluster is that shares a tile. The caller checks
// last_error().
template <class C, class Shared, class Arguments>
void launch_conv(void (*kernel)(Arguments), const Arguments& a, int split, int multiprocessors,
                 cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(Shared);
  static_assert((bytes + sm90_shared_reserved) * C::blocks_per_sm <=
                sm90_shared_per_multiprocessor);
  allow_shared_memory(kernel, bytes);
  const int cluster = C::paired ? pair_blocks : C::split ? split : 1;
  const int clusters =
      C::split ? a.tiles : std::min(a.tiles, multiprocessors * C::blocks_per_sm / cluster);
  launch_early(kernel, dim3(static_cast<unsigned>(clusters * cluster)),
               static_cast<unsigned>(cluster), C::threads, bytes, stream, a);
}

// The operands of a convolution as a product.
struct ConvOperands {
  WindowGeometry windows;  // in words
  ImageShape result;
  const void *x, *weight, *residual;  // residual: null where there is none
  void* y;
};

template <class C>
void set_arguments(ConvArguments& a, const ConvOperands& o) {
  const WindowGeometry& g = o.windows;
  const ImageShape& y = o.result;
  const std::int64_t pixels = y.n * y.pixels(), taps = g.kernel[0] * g.kernel[1];
  const auto parts = [](std::int64_t extent, std::int64_t part) {
    return static_cast<int>((extent + part - 1) / part);
  };
  a.flat =
      taps == 1 && g.stride[0] == 1 && g.stride[1] == 1 && g.padding[0] == 0 && g.padding[1] == 0;
  a.x = a.flat ? box_map(o.x, {g.c, pixels}, {C::depth, C::rows})
               : window_map(o.x, g, C::rows, C::depth);
  a.weight = box_map(o.weight, {g.c, taps, y.c},
                     {C::depth, 1, C::paired ? C::columns / pair_blocks : C::columns});
  const auto results = [&](const void* base) {
    return box_map(base, {C::words_of(static_cast<int>(y.c)), pixels},
                   {C::Box::panel_columns, warpgroup_rows});
  };
  a.y = results(o.y);
  a.residual = o.residual ? results(o.residual) : a.y;
  a.residual_data = o.residual;
  a.y_data = o.y;
  a.tile_columns = parts(y.c, C::columns);
  a.tiles = parts(pixels, C::rows * (C::paired ? pair_blocks : 1)) * a.tile_columns;
  for (std::size_t d = 0; d < 2; ++d) {
    a.kernel[d] = static_cast<int>(g.kernel[d]);
    a.stride[d] = static_cast<int>(g.stride[d]);
    a.padding[d] = static_cast<int>(g.padding[d]);
    a.dilation[d] = static_cast<int>(g.dilation[d]);
  }
  a.out_h = static_cast<int>(y.h);
  a.out_w = static_cast<int>(y.w);
  a.channels = static_cast<int>(y.c);
  a.pixels = pixels;
  a.channel_steps = parts(g.c, C::depth);
  a.steps = a.channel_steps * static_cast<int>(taps);
}

// The windows of an image whose pixels are so many words.
inline WindowGeometry windows_of(const ConvGeometry& g, const ImageShape& x, const ImageShape& w,
                                 std::int64_t words) {
  return {x.n,
          x.h,
          x.w,
          words,
          x.w * words * 2,
          words * 2,
          {w.h, w.w},
          {g.stride[0], g.stride[1]},
          {g.padding[0], g.padding[1]},
          {g.dilation[0], g.dilation[1]}};
}

}  // namespace ridge::gpu::sm90
