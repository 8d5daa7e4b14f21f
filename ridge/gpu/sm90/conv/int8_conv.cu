// Convolutions of s8 with channels last, as products of integers: sum[m, o] = sum over k of
// windows[m, k] weight[o, k], where m counts the pixels of all results and k the elements (r, s, c)
// of a window; and with it what ops/int8.h does to the sums. The plan is that of conv.cu, whose
// producer warp, ring of stages and way of results through it this has too. The copy engine and
// the swizzle know only bytes: to them two elements of s8 are one of 16 bits, which are called
// words here.
//
// Of few pixels a cluster of blocks shares a tile, and each sums a part of k: exact sums have no
// order.

#include <limits>

#include "ridge/gpu/kernels/conv/int8_epilogue.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/conv/conv_windows.h"
#include "ridge/gpu/sm90/conv/int8_conv.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/wgmma_int8.h"

namespace ridge::gpu::sm90 {
namespace {

using Word = BFloat16;  // two elements, as they are moved
constexpr int pad = 8;  // so that rows of partial sums begin in other banks
constexpr int panel_columns = 64;

// Depth: of the inner dimension at a time, in words.
template <class Result, int Rows, int Columns, int Depth, int Stages, int BlocksPerSm, bool Split>
struct Config {
  using Out = Result;
  static constexpr bool rounds = std::is_same_v<Out, Int8>, split = Split;
  static constexpr int rows = Rows, columns = Columns, depth = Depth, stages = Stages;
  static constexpr int blocks_per_sm = BlocksPerSm;
  static constexpr int consumers = rows / warpgroup_rows;
  static constexpr int threads = consumers * warpgroup_threads + warp_threads;

  using A = Tile<Word, rows, depth>;
  using B = Tile<Word, columns, depth>;
  static constexpr int load_bytes = A::bytes + B::bytes;
  // Results leave in boxes of 64 columns, one for each warpgroup and panel.
  using Box = Tile<Word, warpgroup_rows, panel_columns * sizeof(Out) / sizeof(Word)>;
  static constexpr int panels = columns / panel_columns;
  static constexpr int panel_bytes = consumers * Box::bytes;
  static constexpr int stage_bytes = load_bytes > panel_bytes ? load_bytes : panel_bytes;
  static constexpr int stage_panels = stage_bytes / panel_bytes;
  static constexpr int last_steps = split ? 0 : (panels + stage_panels - 1) / stage_panels;
  // One product's, of which a tile of more columns takes several.
  static constexpr int product_columns = columns < 128 ? columns : 128;
  static constexpr int products = columns / product_columns;

  static constexpr int partial_stride = columns + pad;
  static_assert(!split || rows * partial_stride * 4 <= stages * stage_bytes);
  static_assert(stage_bytes % 1024 == 0);

  using Accumulators = std::int32_t[products][product_columns / 2];
};

template <class C>
struct Shared {
  alignas(1024) unsigned char stage[C::stages][C::stage_bytes];
  // The factors and biases of a tile's columns; each warpgroup has its own.
  float2 terms[C::consumers][C::columns];
  std::uint64_t full[C::stages], empty[C::stages];
};

struct Arguments {
  CUtensorMap x, weight, residual, y;
  const float *weight_scale, *bias;
  // For those that do not write by the copy engine.
  const void* residual_data;
  void* y_data;
  float x_scale, residual_scale, inverse;
  // An epilogue that only cuts off goes with scaling before it, which costs nothing there: the
  // scales and biases have the factor `inverse` already, and so has `high`.
  bool cuts;
  float low, high;
  Epilogue epilogue;
  bool flat;  // x is a matrix of pixels: windows are pixels
  int tiles, tile_columns;
  int kernel[2], stride[2], padding[2], dilation[2];
  int out_h, out_w, channels;  // of the result
  std::int64_t pixels;
  int channel_steps, steps;  // of a tap, of all
};

// Calls f(first pixel, first channel) for the tiles of this block. Each round deals one further:
// else a block could have the last columns, which may be few, in all of them.
template <class C, class F>
__device__ void each_tile(const Arguments& a, const F& f) {
  const auto call = [&](int tile) {
    f(tile / a.tile_columns * C::rows, tile % a.tile_columns * C::columns);
  };
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  if constexpr (C::split) {
    call(block / (blocks / a.tiles));
  } else {
    int unit = block;
    for (int begin = 0; begin < a.tiles; begin += blocks) {
      if (begin + unit < a.tiles) call(begin + unit);
      unit = unit + 1 == blocks ? 0 : unit + 1;
    }
  }
}

template <class C>
__device__ void load_residual(Shared<C>& shared, const Arguments& a, int stage, int last, int pixel,
                              int channel) {
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
                    &a.residual, full,
                    (channel + panel * panel_columns) * static_cast<int>(sizeof(typename C::Out)) /
                        static_cast<int>(sizeof(Word)),
                    pixel + w * warpgroup_rows);
}

template <class C>
__device__ void produce(Shared<C>& shared, const Arguments& a) {
  Ring<C::stages> ring;
  each_tile<C>(a, [&](int pixel, int channel) {
    load_windows_of_tile<C>(shared, a, ring, pixel,
                            [&](unsigned char* to, std::uint64_t* full, int c, int tap) {
                              ptx::load_box(to, &a.weight, full, c * C::depth, tap, channel);
                            });
    for (int last = 0; last < C::last_steps; ++last, ring.advance()) {
      ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      load_residual<C>(shared, a, ring.stage, last, pixel, channel);
    }
  });
}

// Bytes a, b, c, d of a row in lanes of four, two of each lane's columns and two eight further, as
// four neighbours each.
__device__ inline std::uint32_t neighbours(std::uint32_t pairs) {
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int from = (lane & ~3) | (2 * lane & 3);
  const std::uint32_t low = __shfl_sync(0xffffffff, pairs, from);
  const std::uint32_t high = __shfl_sync(0xffffffff, pairs, from + 1);
  return __byte_perm(low, high, (lane & 2) == 0 ? 0x5410 : 0x7632);
}

// Four numbers of at least -127 as s8, rounded and saturated, the first lowest.
__device__ inline std::uint32_t pack_int8(float a, float b, float c, float d) {
  std::uint32_t packed = 0;
  asm("{\n"
      ".reg .b32 high;\n"
      "cvt.pack.sat.s8.s32.b32 high, %4, %3, 0;\n"
      "cvt.pack.sat.s8.s32.b32 %0, %2, %1, high;\n"
      "}\n"
      : "=r"(packed)
      : "r"(__float2int_rn(a)), "r"(__float2int_rn(b)), "r"(__float2int_rn(c)),
        "r"(__float2int_rn(d)));
  return packed;
}

template <class C>
class Consumer {
 public:
  using Out = typename C::Out;
  using Box = typename C::Box;

  __device__ Consumer(Shared<C>& shared, const Arguments& a, int warpgroup)
      : shared_(shared), a_(a), warpgroup_(warpgroup) {}

  __device__ void run() {
    each_tile<C>(a_, [&](int pixel, int channel) {
      typename C::Accumulators d;
      if constexpr (C::split) {
        multiply(d);
        finish_part(d, pixel, channel);
      } else {
        float2 terms[own_terms] = {};
        load_terms(channel, terms);
        multiply(d);
        keep_terms(channel, terms);
        finish(d, pixel, channel);
      }
    });
    if constexpr (!C::split)
      if (leads()) ptx::store_wait<0>();
  }

 private:
  static constexpr int own_terms = (C::columns + warpgroup_threads - 1) / warpgroup_threads;

  __device__ int thread() const { return static_cast<int>(threadIdx.x) % warpgroup_threads; }
  __device__ bool leads() const { return thread() == 0; }
  __device__ void sync() const { ptx::named_sync(1 + warpgroup_, warpgroup_threads); }

  // The factor and the bias of a channel, on their way while the tile is multiplied.
  __device__ float2 term(int channel) const {
    if (channel >= a_.channels) return {};
    const float scale = a_.x_scale * __ldg(a_.weight_scale + channel);
    const float bias = __ldg(a_.bias + channel);
    return a_.cuts ? make_float2(scale * a_.inverse, bias * a_.inverse) : make_float2(scale, bias);
  }
  __device__ void load_terms(int channel, float2 (&terms)[own_terms]) const {
    if (channel == terms_channel_) return;
#pragma unroll
    for (int i = 0; i < own_terms; ++i) terms[i] = term(channel + thread() + i * warpgroup_threads);
  }
  __device__ void keep_terms(int channel, const float2 (&terms)[own_terms]) {
    if (channel == terms_channel_) return;
    terms_channel_ = channel;
    sync();  // nobody reads those of the tile before any more
#pragma unroll
    for (int i = 0; i < own_terms; ++i)
      if (const int c = thread() + i * warpgroup_threads; c < C::columns)
        shared_.terms[warpgroup_][c] = terms[i];
    sync();
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
          ptx::wgmma_int8<C::product_columns>(
              d[p], C::A::along_columns(a, part, warpgroup_ * warpgroup_rows),
              C::B::along_columns(b, part, p * C::product_columns),
              step != steps.first || part != 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (step != steps.first) release(&shared_.empty[before]);
      before = ring_.stage;
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int p = 0; p < C::products; ++p) ptx::pin(d[p]);
    if (steps.first != steps.end) release(&shared_.empty[before]);
  }

  // Through the ring: where the residual came, the result leaves.
  __device__ void finish(const typename C::Accumulators& d, int pixel, int channel) {
#pragma unroll
    for (int last = 0; last < C::last_steps; ++last, ring_.advance()) {
      ptx::barrier_wait(&shared_.full[ring_.stage], ring_.parity);
      const int first = last * C::stage_panels;
#pragma unroll
      for (int panel = first; panel < first + C::stage_panels && panel < C::panels; ++panel)
        write_panel(d, panel, box_of(panel - first));
      ptx::fence_shared_for_async();
      sync();
      if (leads()) {
#pragma unroll
        for (int panel = first; panel < first + C::stage_panels && panel < C::panels; ++panel)
          if (const int column = channel + panel * panel_columns; column < a_.channels)
            ptx::store_box(&a_.y, box_of(panel - first),
                           column * static_cast<int>(sizeof(Out)) / static_cast<int>(sizeof(Word)),
                           pixel + warpgroup_ * warpgroup_rows);
        ptx::store_commit();
        ptx::store_wait_read<0>();
      }
      release(&shared_.empty[ring_.stage]);
    }
  }

  __device__ unsigned char* box_of(int panel) const {
    return shared_.stage[ring_.stage] + panel * C::panel_bytes + warpgroup_ * Box::bytes;
  }

  // Finishes the sums of a panel's columns and leaves them in its box.
  __device__ void write_panel(const typename C::Accumulators& d, int panel, unsigned char* box) {
    const std::uint32_t address = ptx::shared_address(box);
    const int at = panel * panel_columns, from = at % C::product_columns / 2;
    const auto& sums = d[at / C::product_columns];
    // By 16 columns, so that few registers are needed at a time: pairs of neighbours of this row
    // and the one eight below, and the same eight columns further.
#pragma unroll
    for (int j = 0; j < panel_columns / 8; j += 2) {
      float values[8];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float4 terms = *reinterpret_cast<const float4*>(
            &shared_.terms[warpgroup_][at + 8 * (j + w / 2) + first_column()]);
        const std::int32_t* sum = &sums[from + 4 * j + 2 * w];
        values[2 * w] = fmaf(static_cast<float>(sum[0]), terms.x, terms.y);
        values[2 * w + 1] = fmaf(static_cast<float>(sum[1]), terms.z, terms.w);
      }
      if (a_.residual_data != nullptr) add_residual(address, j, values);
      end(values);
      store(address, j, values);
    }
  }

  template <int N>
  __device__ void end(float (&values)[N]) const {
    if (a_.cuts) {
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = fmaxf(values[k], a_.low);
      if (a_.epilogue != Epilogue::relu6) return;
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = fminf(values[k], a_.high);
    } else {
      apply_any_epilogue(a_.epilogue, values);
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = fmaxf(values[k] * a_.inverse, a_.low);
    }
  }

  // Where a pair of columns of s8, 8 j + first_column() and the next, lies in the box.
  __device__ static std::uint32_t pair_address(std::uint32_t box, int row, int j) {
    return Box::chunk(box, row, j / 2) + j % 2 * 8 + first_column();
  }

  __device__ void add_residual(std::uint32_t box, int j, float (&values)[8]) const {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int row = first_row() + 8 * (w % 2), group = j + w / 2;
      if constexpr (C::rounds) {
        const std::uint32_t pair = load_pair(pair_address(box, row, group));
        values[2 * w] = fmaf(a_.residual_scale, byte_of(pair, 0), values[2 * w]);
        values[2 * w + 1] = fmaf(a_.residual_scale, byte_of(pair, 1), values[2 * w + 1]);
      } else {
        const std::uint32_t word = ptx::load_word(Box::chunk(box, row, group) + 2 * first_column());
        values[2 * w] = fmaf(a_.residual_scale, half_of_word<Out>(word, 0), values[2 * w]);
        values[2 * w + 1] = fmaf(a_.residual_scale, half_of_word<Out>(word, 1), values[2 * w + 1]);
      }
    }
    __syncwarp();  // other lanes write where these were
  }

  __device__ static std::uint32_t load_pair(std::uint32_t address) {
    std::uint16_t pair = 0;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(pair) : "r"(address) : "memory");
    return pair;
  }

  __device__ void store(std::uint32_t box, int j, const float (&v)[8]) const {
    if constexpr (C::rounds) {
      const std::uint32_t upper = neighbours(pack_int8(v[0], v[1], v[4], v[5]));
      const std::uint32_t lower = neighbours(pack_int8(v[2], v[3], v[6], v[7]));
      const int column = 2 * first_column();  // of the 16
      ptx::store_word(Box::chunk(box, first_row(), j / 2) + column, upper);
      ptx::store_word(Box::chunk(box, first_row() + 8, j / 2) + column, lower);
    } else {
      const int lane = static_cast<int>(threadIdx.x) % warp_threads;
      const int warp = static_cast<int>(threadIdx.x) / warp_threads % 4;
      ptx::store_matrices(Box::chunk(box, warp * 16 + (lane & 15), j + (lane >> 4)),
                          ptx::pack<Out>(v[0], v[1]), ptx::pack<Out>(v[2], v[3]),
                          ptx::pack<Out>(v[4], v[5]), ptx::pack<Out>(v[6], v[7]));
    }
  }

  // Sums up what the blocks of the cluster have, of this block's share of the rows.
  __device__ void finish_part(const typename C::Accumulators& d, int pixel, int channel) {
    static_assert(C::consumers == 1);
    sync();  // no warp's product reads any more what the sums are written over
    auto* const partial = reinterpret_cast<std::int32_t*>(shared_.stage);
#pragma unroll
    for (int p = 0; p < C::products; ++p)
#pragma unroll
      for (int i = 0; i < C::product_columns / 2; i += 2) {
        const int row = warpgroup_ * warpgroup_rows + first_row() + i / 2 % 2 * 8;
        const int column = p * C::product_columns + i / 4 * 8 + first_column();
        *reinterpret_cast<int2*>(partial + row * C::partial_stride + column) =
            make_int2(d[p][i], d[p][i + 1]);
      }
    ptx::cluster_sync();
    const int parts = static_cast<int>(gridDim.x) / a_.tiles, rank = ptx::cluster_rank();
    const int rows = C::rows / parts;
    const std::uint32_t own = ptx::shared_address(partial);
    for (int i = static_cast<int>(threadIdx.x) * 4; i < rows * C::columns;
         i += C::consumers * warpgroup_threads * 4) {
      const int row = rank * rows + i / C::columns, column = i % C::columns;
      if (pixel + row >= a_.pixels || channel + column >= a_.channels) continue;
      const std::uint32_t at = own + (row * C::partial_stride + column) * 4;
      int sums[4] = {};
      for (int part = 0; part < parts; ++part) {
        const float4 bits = ptx::load4_of_block(at, part);
        sums[0] += __float_as_int(bits.x), sums[1] += __float_as_int(bits.y);
        sums[2] += __float_as_int(bits.z), sums[3] += __float_as_int(bits.w);
      }
      const std::int64_t to =
          static_cast<std::int64_t>(pixel + row) * a_.channels + channel + column;
      float values[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 t = term(channel + column + k);
        values[k] = fmaf(static_cast<float>(sums[k]), t.x, t.y);
      }
      if (a_.residual_data != nullptr) {
        float more[4];
        load_pack<4>(static_cast<const Out*>(a_.residual_data) + to, more);
#pragma unroll
        for (int k = 0; k < 4; ++k) values[k] = fmaf(a_.residual_scale, more[k], values[k]);
      }
      end(values);
      store_pack<4>(static_cast<Out*>(a_.y_data) + to, values);
    }
  }

  Shared<C>& shared_;
  const Arguments& a_;
  const int warpgroup_;
  Ring<C::stages> ring_;
  int terms_channel_ = -1;  // the first whose terms are kept
};

template <class C>
__global__ void __launch_bounds__(C::threads, C::blocks_per_sm)
    int8_conv_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<C>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::stages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], C::consumers * warpgroup_releases);
    }
    ptx::barrier_init_fence();
    ptx::prefetch_map(&a.x);
    ptx::prefetch_map(&a.weight);
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  const int warpgroup =
      __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / warpgroup_threads, 0);
  if (warpgroup == C::consumers) {
    if (ptx::elect_one()) produce<C>(shared, a);
    __syncwarp();
    if constexpr (C::split) ptx::cluster_sync();  // of the partial sums
  } else {
    Consumer<C>(shared, a, warpgroup).run();
  }
  // Others may still read this block's sums.
  if constexpr (C::split) ptx::cluster_sync();
}

template <class C>
void launch_conv(const Arguments& arguments, int split, int multiprocessors, cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(Shared<C>);
  static_assert((bytes + 1024) * C::blocks_per_sm <= 233472);
  const auto kernel = int8_conv_kernel<C>;
  allow_shared_memory(kernel, bytes);
  const int blocks = C::split ? arguments.tiles * split
                              : std::min(arguments.tiles, multiprocessors * C::blocks_per_sm);
  launch_early(kernel, dim3(static_cast<unsigned>(blocks)), C::split ? split : 1, C::threads, bytes,
               stream, arguments);
  check(last_error(), "a convolution of integers");
}

// The image in words.
WindowGeometry windows_of(const Int8Problem& p) {
  const ConvGeometry& g = p.op;
  const ImageShape &x = p.x, &w = p.weight;
  return {x.n,
          x.h,
          x.w,
          x.c / 2,
          x.w * x.c,
          x.c,
          {w.h, w.w},
          {g.stride[0], g.stride[1]},
          {g.padding[0], g.padding[1]},
          {g.dilation[0], g.dilation[1]}};
}

template <class C>
void run(const Int8Problem& p, const Int8Tiles& tiles, const Int8Pointers& o, int multiprocessors,
         cudaStream_t stream) {
  const WindowGeometry g = windows_of(p);
  const ImageShape& y = p.y;
  const std::int64_t pixels = y.n * y.pixels(), taps = g.kernel[0] * g.kernel[1];
  Arguments a{};
  a.flat =
      taps == 1 && g.stride[0] == 1 && g.stride[1] == 1 && g.padding[0] == 0 && g.padding[1] == 0;
  a.x = a.flat ? box_map(o.x, {g.c, pixels}, {C::depth, C::rows})
               : window_map(o.x, g, C::rows, C::depth);
  a.weight = box_map(o.weight, {g.c, taps, y.c}, {C::depth, 1, C::columns});
  const auto results = [&](const void* base) {
    return box_map(base, {y.c * static_cast<std::int64_t>(sizeof(typename C::Out)) / 2, pixels},
                   {C::Box::panel_columns, warpgroup_rows});
  };
  a.y = results(o.y);
  a.residual = o.residual ? results(o.residual) : a.y;
  a.weight_scale = o.weight_scale;
  a.bias = o.bias;
  a.residual_data = o.residual;
  a.y_data = o.y;
  a.x_scale = p.op.x_scale;
  a.inverse = C::rounds ? 1.0f / p.op.y_scale : 1.0f;
  a.epilogue = p.op.epilogue;
  const bool relu = a.epilogue == Epilogue::relu || a.epilogue == Epilogue::relu6;
  a.cuts = relu || a.epilogue == Epilogue::none;
  a.low = relu ? 0.0f : C::rounds ? -127.0f : -std::numeric_limits<float>::infinity();
  a.high = 6.0f * a.inverse;
  a.residual_scale = p.op.residual_scale * (a.cuts ? a.inverse : 1.0f);
  const auto parts = [](std::int64_t extent, std::int64_t part) {
    return static_cast<int>((extent + part - 1) / part);
  };
  a.tile_columns = parts(y.c, C::columns);
  a.tiles = parts(pixels, C::rows) * a.tile_columns;
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

template <class Out>
void dispatch(const Int8Problem& problem, const Int8Tiles& tiles, const Int8Pointers& operands,
              int multiprocessors, cudaStream_t stream) {
  const auto call = [&]<class C>() { run<C>(problem, tiles, operands, multiprocessors, stream); };
  const bool deep = tiles.depth == 128;
  if (tiles.rows == 64) return call.template operator()<Config<Out, 64, 64, 64, 4, 3, true>>();
  if (tiles.columns == 256)
    return call.template operator()<Config<Out, 128, 256, 64, 4, 1, false>>();
  if (tiles.columns == 128 && deep)
    return call.template operator()<Config<Out, 128, 128, 64, 3, 2, false>>();
  if (tiles.columns == 128)
    return call.template operator()<Config<Out, 128, 128, 32, 5, 2, false>>();
  if (deep) return call.template operator()<Config<Out, 128, 64, 64, 3, 3, false>>();
  return call.template operator()<Config<Out, 128, 64, 32, 4, 3, false>>();
}

}  // namespace

void int8_conv(const Int8Problem& problem, const Int8Tiles& tiles, const Int8Pointers& operands,
               int multiprocessors, Stream stream) {
  if (problem.op.out == DType::s8)
    dispatch<Int8>(problem, tiles, operands, multiprocessors, stream);
  else
    dispatch<Float16>(problem, tiles, operands, multiprocessors, stream);
}

}  // namespace ridge::gpu::sm90
