// Convolutions of 16-bit images with channels last, as products: y[m, o] = sum over k of
// windows[m, k] weight[o, k], where m counts the pixels of all results and k the elements (r, s, c)
// of a window. The copy engine gathers windows on the way into shared memory; none are stored.
//
// A block has a producer warp, which keeps the copy engine ahead by a ring of stages, and one or
// two consumer warpgroups, which multiply 64 rows of a tile each. A stage takes `depth` channels of
// one element of the windows, and as much of the weight. When all are summed, further stages bring
// the residual and take the results away: what a tile ends with travels through the ring like what
// it begins with, so that the next tile's operands follow close behind. Blocks stay and go through
// the tiles, along the channels of the result first: what neighbours read at the same time are the
// same pixels.
//
// Where the L2 cache is what limits, two blocks with neighbouring tiles are a cluster: each loads
// half of the weight that both need, for both.
//
// For few pixels of many channels a cluster of blocks shares a tile, each sums a part of k, and
// each finishes a part of the rows, with what it reads from the others' shared memory: always the
// same sums in the same order.

#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/conv/conv.h"
#include "ridge/gpu/sm90/conv/conv_windows.h"
#include "ridge/gpu/sm90/epilogue.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int pair_blocks = 2, most_parts = 8;
constexpr int pad_floats = 8;  // so that rows of partial sums begin in other banks

// How the blocks of a cluster work together.
enum class Sharing : std::uint8_t { none, weight, tile };

template <class Element, int Rows, int Columns, int Depth, int Stages, int BlocksPerSm,
          Sharing How = Sharing::none>
struct Config {
  using T = Element;
  static constexpr int rows = Rows, columns = Columns, depth = Depth, stages = Stages;
  static constexpr int blocks_per_sm = BlocksPerSm;
  static constexpr bool split = How == Sharing::tile, paired = How == Sharing::weight;
  static constexpr int consumers = rows / warpgroup_rows;
  static constexpr int threads = consumers * warpgroup_threads + warp_threads;

  using A = Tile<T, rows, depth>;
  using B = Tile<T, columns, depth>;
  static constexpr int load_bytes = A::bytes + B::bytes;
  // Results leave in boxes, one for each warpgroup and panel of columns.
  static constexpr int box_columns = columns % 64 == 0 ? 64 : 32;
  using Box = Tile<T, warpgroup_rows, box_columns>;
  static constexpr int panels = columns / Box::panel_columns;
  static constexpr int panel_bytes = consumers * Box::bytes;
  static constexpr int stage_bytes = load_bytes > panel_bytes ? load_bytes : panel_bytes;
  static constexpr int stage_panels = stage_bytes / panel_bytes;
  static constexpr int last_steps = split ? 0 : (panels + stage_panels - 1) / stage_panels;
  // One product's, of which a tile of more columns takes several.
  static constexpr int product_columns = columns < 128 ? columns : 128;
  static constexpr int products = columns / product_columns;

  static constexpr int partial_stride = columns + pad_floats;
  static_assert(!split || rows * partial_stride * 4 <= stages * stage_bytes);
  static_assert(stage_bytes % 1024 == 0);

  using Accumulators = float[products][product_columns / 2];
};

template <class C>
struct Shared {
  alignas(1024) unsigned char stage[C::stages][C::stage_bytes];
  std::uint64_t full[C::stages], empty[C::stages];
};

struct Arguments {
  CUtensorMap x, weight, residual, y;
  // For those that do not write by the copy engine.
  const void *bias, *residual_data;
  void* y_data;
  Epilogue epilogue;
  bool flat;                // x is a matrix of pixels: windows are pixels
  int tiles, tile_columns;  // for pairs of blocks, of pairs of tiles
  int kernel[2], stride[2], padding[2], dilation[2];
  int out_h, out_w, channels;  // of the result
  std::int64_t pixels;
  int channel_steps, steps;  // of a tap, of all
};

// Where a tile begins; of a pair, this block's.
struct Place {
  int pixel, channel;
};

template <class C>
__device__ Place place_of(const Arguments& a, int tile) {
  int row = tile / a.tile_columns;
  if constexpr (C::paired) row = pair_blocks * row + ptx::cluster_rank();
  return {row * C::rows, tile % a.tile_columns * C::columns};
}

// The blocks that have the same tiles.
template <class C>
__device__ int cluster_blocks(const Arguments& a) {
  return C::split ? static_cast<int>(gridDim.x) / a.tiles : C::paired ? pair_blocks : 1;
}

template <class C>
__device__ int first_tile(const Arguments& a) {
  return static_cast<int>(blockIdx.x) / cluster_blocks<C>(a);
}

// Calls f(first pixel, first channel) for the tiles of this block.
template <class C, class F>
__device__ void each_tile(const Arguments& a, const F& f) {
  const auto call = [&](int tile) {
    const Place place = place_of<C>(a, tile);
    f(place.pixel, place.channel);
  };
  int unit = first_tile<C>(a);
  if constexpr (C::split) {
    call(unit);
  } else {
    // A pair does as many tiles in both blocks: what lies beyond the last pixel is zero and not
    // written. Each round deals one further: else a block could have the last columns, which may
    // be few, in all of them.
    const int units = static_cast<int>(gridDim.x) / cluster_blocks<C>(a);
    for (int begin = 0; begin < a.tiles; begin += units) {
      if (begin + unit < a.tiles) call(begin + unit);
      unit = unit + 1 == units ? 0 : unit + 1;
    }
  }
}

// Asks for the weight of the first tile, which no image has to wait for; blocks with the same
// columns share that out. Only as far as the L2 cache: should the kernel before have yet to write
// it, what is loaded later is right.
template <class C>
__device__ void prefetch_weight(const Arguments& a) {
  const Steps steps = own_steps<C>(a);
  const Place place = place_of<C>(a, first_tile<C>(a));
  const int tile_rows = a.tiles / a.tile_columns * (C::paired ? pair_blocks : 1);
  for (int step = steps.first + place.pixel / C::rows; step < steps.end; step += tile_rows)
    ptx::prefetch_box(&a.weight, step % a.channel_steps * C::depth, step / a.channel_steps,
                      place.channel);
}

template <class C>
__device__ void produce(Shared<C>& shared, const Arguments& a) {
  Ring<C::stages> ring;
  each_tile<C>(a, [&](int pixel, int channel) {
    load_windows_of_tile<C>(
        shared, a, ring, pixel, [&](unsigned char* to, std::uint64_t* full, int c, int tap) {
          if constexpr (C::paired) {
            constexpr int half = C::columns / pair_blocks;
            const int rank = ptx::cluster_rank();
            ptx::load_box_to((1 << pair_blocks) - 1, to + rank * (C::B::bytes / 2), &a.weight, full,
                             c * C::depth, tap, channel + rank * half);
          } else {
            ptx::load_box(to, &a.weight, full, c * C::depth, tap, channel);
          }
        });
    for (int last = 0; last < C::last_steps; ++last, ring.advance()) {
      std::uint64_t* full = &shared.full[ring.stage];
      ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      if (a.residual_data == nullptr) {
        ptx::barrier_arrive(full);
        continue;
      }
      const int first = last * C::stage_panels, end = min(first + C::stage_panels, C::panels);
      ptx::barrier_arrive_expect(full, (end - first) * C::panel_bytes);
      for (int panel = first; panel < end; ++panel)
        for (int w = 0; w < C::consumers; ++w)
          ptx::load_box(
              shared.stage[ring.stage] + (panel - first) * C::panel_bytes + w * C::Box::bytes,
              &a.residual, full, channel + panel * C::Box::panel_columns,
              pixel + w * warpgroup_rows);
    }
  });
}

// The bias of two neighbouring channels, if there are such.
template <class T>
__device__ std::uint32_t bias_of(const Arguments& a, int channel) {
  if (a.bias == nullptr || channel >= a.channels) return 0;
  return __ldg(reinterpret_cast<const std::uint32_t*>(static_cast<const T*>(a.bias) + channel));
}

template <class C>
class Consumer {
 public:
  using T = typename C::T;
  using Box = typename C::Box;

  __device__ Consumer(Shared<C>& shared, const Arguments& a, int warpgroup)
      : shared_(shared), a_(a), warpgroup_(warpgroup) {}

  __device__ void run() {
    each_tile<C>(a_, [&](int pixel, int channel) {
      typename C::Accumulators d;
      if constexpr (!C::split) load_bias(channel);
      multiply(d);
      if constexpr (C::split)
        finish_part(d, pixel, channel);
      else
        finish(d, pixel, channel);
    });
    if constexpr (!C::split)
      if (leads()) ptx::store_wait<0>();
  }

 private:
  __device__ bool leads() const { return threadIdx.x % warpgroup_threads == 0; }
  __device__ void sync() const { ptx::named_sync(1 + warpgroup_, warpgroup_threads); }
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

  // On its way while the tile is multiplied.
  __device__ void load_bias(int channel) {
    if (channel == bias_channel_) return;
    bias_channel_ = channel;
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j)
      bias_[j] = bias_of<T>(a_, channel + 8 * j + first_column());
  }

  __device__ void multiply(typename C::Accumulators& d) {
    const Steps steps = own_steps<C>(a_);
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
          ptx::wgmma<T, C::product_columns, false, false>(
              d[p], C::A::along_columns(a, part, warpgroup_ * warpgroup_rows),
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

  // Through the ring: where the residual came, the result leaves.
  __device__ void finish(const typename C::Accumulators& d, int pixel, int channel) {
#pragma unroll
    for (int last = 0; last < C::last_steps; ++last, ring_.advance()) {
      ptx::barrier_wait(&shared_.full[ring_.stage], ring_.parity);
      const int first = last * C::stage_panels;
#pragma unroll
      for (int panel = first; panel < first + C::stage_panels && panel < C::panels; ++panel)
        write_panel(d, panel, box_of(panel - first), channel + panel * Box::panel_columns);
      ptx::fence_shared_for_async();
      sync();
      if (leads()) {
#pragma unroll
        for (int panel = first; panel < first + C::stage_panels && panel < C::panels; ++panel)
          if (channel + panel * Box::panel_columns < a_.channels)
            ptx::store_box(&a_.y, box_of(panel - first), channel + panel * Box::panel_columns,
                           pixel + warpgroup_ * warpgroup_rows);
        ptx::store_commit();
        ptx::store_wait_read<0>();
      }
      release_stage(ring_.stage);
    }
  }

  __device__ unsigned char* box_of(int panel) const {
    return shared_.stage[ring_.stage] + panel * C::panel_bytes + warpgroup_ * Box::bytes;
  }

  // Finishes the sums of a panel's columns, from `channel` on, and leaves them in its box.
  __device__ void write_panel(const typename C::Accumulators& d, int panel, unsigned char* box,
                              int channel) {
    const std::uint32_t address = ptx::shared_address(box);
    const int at = panel * Box::panel_columns, from = at % C::product_columns / 2;
    const auto& sums = d[at / C::product_columns];
    const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
    // By 16 columns, so that few registers are needed at a time.
#pragma unroll
    for (int j = 0; j < Box::panel_columns / 8; j += 2) {
      if (channel + 8 * j >= a_.channels) break;  // what else there is will not be stored
      float values[8];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const std::uint32_t bias = bias_[at / 8 + j + w / 2];
        values[2 * w] = sums[from + 4 * j + 2 * w] + half_of_word<T>(bias, 0);
        values[2 * w + 1] = sums[from + 4 * j + 2 * w + 1] + half_of_word<T>(bias, 1);
      }
      if (a_.residual_data != nullptr) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const std::uint32_t word = ptx::load_word(
              Box::chunk(address, first_row() + 8 * (w % 2), j + w / 2) + 2 * first_column());
          values[2 * w] += half_of_word<T>(word, 0);
          values[2 * w + 1] += half_of_word<T>(word, 1);
        }
        __syncwarp();  // other lanes write where these words were
      }
      std::uint32_t packed[4];
      pack_with_epilogue<T>(a_.epilogue, values, packed);
      ptx::store_matrices(Box::chunk(address, warp * 16 + (lane & 15), j + (lane >> 4)), packed[0],
                          packed[1], packed[2], packed[3]);
    }
  }

  // Sums up what the blocks of the cluster have, of this block's share of the rows.
  __device__ void finish_part(const typename C::Accumulators& d, int pixel, int channel) {
    static_assert(C::consumers == 1);
    sync();  // no warp's product reads any more what the sums are written over
    float* const partial = reinterpret_cast<float*>(shared_.stage);
#pragma unroll
    for (int p = 0; p < C::products; ++p)
#pragma unroll
      for (int i = 0; i < C::product_columns / 2; i += 2) {
        const int row = warpgroup_ * warpgroup_rows + first_row() + i / 2 % 2 * 8;
        const int column = p * C::product_columns + i / 4 * 8 + first_column();
        *reinterpret_cast<float2*>(partial + row * C::partial_stride + column) =
            make_float2(d[p][i], d[p][i + 1]);
      }
    const int parts = cluster_blocks<C>(a_), rank = ptx::cluster_rank();
    const int rows = C::rows / parts;
    const std::uint32_t own = ptx::shared_address(partial);
    constexpr int step = C::consumers * warpgroup_threads * 4;
    const auto place_at = [&](int i) {
      return Place{pixel + rank * rows + i / C::columns, channel + i % C::columns};
    };
    int i = static_cast<int>(threadIdx.x) * 4;
    Addends addends = addends_at(place_at(i));  // on their way while blocks wait for each other
    ptx::cluster_sync();
    for (; i < rows * C::columns; i += step) {
      const Place place = place_at(i);
      const Addends add = addends;
      addends = addends_at(place_at(i + step));
      if (!exists(place)) continue;
      const std::uint32_t at =
          own + ((place.pixel - pixel) * C::partial_stride + place.channel - channel) * 4;
      // All are read before the first is used.
      float4 sums[most_parts];
#pragma unroll
      for (int part = 0; part < most_parts; ++part)
        if (part < parts) sums[part] = ptx::load4_of_block(at, part);
      float values[4] = {};
#pragma unroll
      for (int part = 0; part < most_parts; ++part) {
        if (part >= parts) continue;
        values[0] += sums[part].x, values[1] += sums[part].y;
        values[2] += sums[part].z, values[3] += sums[part].w;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) values[k] += half_of_word<T>(add.bias[k / 2], k % 2);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        values[k] += half_of_word<T>(k < 2 ? add.residual.x : add.residual.y, k % 2);
      apply_short_epilogue(a_.epilogue, values);
      store_pack<4>(static_cast<T*>(a_.y_data) + offset_of(place), values);
    }
  }

  // What is added to the sums of four neighbouring channels.
  struct Addends {
    std::uint32_t bias[2];
    uint2 residual;
  };
  __device__ bool exists(const Place& place) const {
    return place.pixel < a_.pixels && place.channel < a_.channels;
  }
  __device__ std::int64_t offset_of(const Place& place) const {
    return static_cast<std::int64_t>(place.pixel) * a_.channels + place.channel;
  }
  __device__ Addends addends_at(const Place& place) const {
    Addends addends{};
    addends.bias[0] = bias_of<T>(a_, place.channel);
    addends.bias[1] = bias_of<T>(a_, place.channel + 2);
    if (a_.residual_data != nullptr && exists(place))
      addends.residual = *reinterpret_cast<const uint2*>(static_cast<const T*>(a_.residual_data) +
                                                         offset_of(place));
    return addends;
  }

  Shared<C>& shared_;
  const Arguments& a_;
  const int warpgroup_;
  Ring<C::stages> ring_;
  int bias_channel_ = -1;  // the first of bias_
  std::uint32_t bias_[C::columns / 8];
};

template <class C>
__global__ void __launch_bounds__(C::threads, C::blocks_per_sm)
    conv_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<C>*>(memory);
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
  if (warpgroup == C::consumers && ptx::elect_one()) prefetch_weight<C>(a);
  __syncwarp();
  wait_for_previous();
  let_next_begin();
  if (warpgroup == C::consumers) {
    if (ptx::elect_one()) produce<C>(shared, a);
    __syncwarp();
    if constexpr (C::split) ptx::cluster_sync();  // of the partial sums
  } else {
    Consumer<C>(shared, a, warpgroup).run();
  }
  // Others may still read this block's sums, or arrive at its barriers.
  if constexpr (C::split || C::paired) ptx::cluster_sync();
}

template <class C>
void launch_conv(const Arguments& arguments, int split, int multiprocessors, cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(Shared<C>);
  static_assert((bytes + 1024) * C::blocks_per_sm <= 233472);
  const auto kernel = conv_kernel<C>;
  allow_shared_memory(kernel, bytes);
  const int cluster = C::paired ? pair_blocks : split;
  const int clusters =
      C::split ? arguments.tiles
               : std::min(arguments.tiles, multiprocessors * C::blocks_per_sm / cluster);
  launch_early(kernel, dim3(static_cast<unsigned>(clusters * cluster)),
               static_cast<unsigned>(cluster), C::threads, bytes, stream, arguments);
  check(last_error(), "a convolution");
}

// A convolution as a product: windows[pixels, taps x channels] times a matrix stored [columns,
// taps, channels].
struct Product {
  WindowGeometry windows;
  const void *x, *weight;
};

Product product_of(const ConvProblem& p, const ConvPointers& o) {
  const ConvGeometry& g = p.geometry;
  const ImageShape &x = p.x, &w = p.weight;
  return {.windows = {x.n,
                      x.h,
                      x.w,
                      x.c,
                      x.w * x.c * 2,
                      x.c * 2,
                      {w.h, w.w},
                      {g.stride[0], g.stride[1]},
                      {g.padding[0], g.padding[1]},
                      {g.dilation[0], g.dilation[1]}},
          .x = o.x,
          .weight = o.weight};
}

template <class C>
void run(const ConvProblem& problem, const Product& product, const ConvTiles& tiles,
         const ConvPointers& o, int multiprocessors, cudaStream_t stream) {
  const WindowGeometry& g = product.windows;
  const ImageShape& y = problem.y;
  const std::int64_t pixels = y.n * y.pixels(), taps = g.kernel[0] * g.kernel[1];
  Arguments a{};
  a.flat =
      taps == 1 && g.stride[0] == 1 && g.stride[1] == 1 && g.padding[0] == 0 && g.padding[1] == 0;
  a.x = a.flat ? box_map(product.x, {g.c, pixels}, {C::depth, C::rows})
               : window_map(product.x, g, C::rows, C::depth);
  a.weight = box_map(product.weight, {g.c, taps, y.c},
                     {C::depth, 1, C::paired ? C::columns / pair_blocks : C::columns});
  const auto results = [&](const void* base) {
    return box_map(base, {y.c, pixels}, {C::Box::panel_columns, warpgroup_rows});
  };
  a.y = results(o.y);
  a.residual = o.residual ? results(o.residual) : a.y;
  a.bias = o.bias;
  a.residual_data = o.residual;
  a.y_data = const_cast<void*>(o.y);
  a.epilogue = problem.epilogue;
  const auto parts = [](std::int64_t extent, std::int64_t part) {
    return static_cast<int>((extent + part - 1) / part);
  };
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
  launch_conv<C>(a, tiles.split, multiprocessors, stream);
}

template <class T>
void dispatch(const ConvProblem& problem, const ConvTiles& tiles, const ConvPointers& operands,
              int multiprocessors, cudaStream_t stream) {
  const auto is = [&](int rows, int columns) {
    return tiles.rows == rows && tiles.columns == columns;
  };
  const Product product = product_of(problem, operands);
  const auto call = [&]<class C>() {
    run<C>(problem, product, tiles, operands, multiprocessors, stream);
  };
  if (tiles.paired) {
    constexpr auto sharing = Sharing::weight;
    if (is(128, 256)) return call.template operator()<Config<T, 128, 256, 64, 4, 1, sharing>>();
    if (is(128, 128)) return call.template operator()<Config<T, 128, 128, 64, 3, 2, sharing>>();
    return call.template operator()<Config<T, 128, 64, 64, 4, 2, sharing>>();
  }
  if (is(128, 256)) return call.template operator()<Config<T, 128, 256, 64, 4, 1>>();
  if (is(128, 128)) return call.template operator()<Config<T, 128, 128, 64, 3, 2>>();
  if (is(128, 96)) return call.template operator()<Config<T, 128, 96, 64, 4, 2>>();
  if (is(128, 64)) return call.template operator()<Config<T, 128, 64, 64, 3, 3>>();
  if (is(128, 32)) return call.template operator()<Config<T, 128, 32, 64, 3, 3>>();
  // With a ring for all that a block loads, since none comes after it.
  if (tiles.split == 1)
    return is(64, 64) ? call.template operator()<Config<T, 64, 64, 64, 8, 1>>()
                      : call.template operator()<Config<T, 64, 32, 64, 10, 1>>();
  if (is(64, 64)) return call.template operator()<Config<T, 64, 64, 64, 6, 2, Sharing::tile>>();
  return call.template operator()<Config<T, 64, 32, 64, 6, 2, Sharing::tile>>();
}

}  // namespace

void conv(const ConvProblem& problem, const ConvTiles& tiles, const ConvPointers& operands,
          int multiprocessors, Stream stream) {
  if (problem.dtype == DType::f16)
    dispatch<Float16>(problem, tiles, operands, multiprocessors, stream);
  else
    dispatch<BFloat16>(problem, tiles, operands, multiprocessors, stream);
}

}  // namespace ridge::gpu::sm90
