// Convolutions of s8 with channels last, by the pipeline of conv_pipeline.h in exact 32-bit sums,
// and what ops/int8.h does to the sums. Two elements of s8 are one word of the pipeline.

#include <limits>

#include "ridge/gpu/kernels/conv/int8_epilogue.h"
#include "ridge/gpu/sm90/conv/conv_pipeline.h"
#include "ridge/gpu/sm90/conv/int8_conv.h"
#include "ridge/gpu/sm90/wgmma_int8.h"

namespace ridge::gpu::sm90 {
namespace {

// Depth: of the inner dimension at a time, in words.
template <class Result, int Rows, int Columns, int Depth, int Stages, int BlocksPerSm, Sharing How>
struct Config
    : ConvConfig<BFloat16, Result, std::int32_t, Rows, Columns, Depth, Stages, BlocksPerSm, How> {
  using Base =
      ConvConfig<BFloat16, Result, std::int32_t, Rows, Columns, Depth, Stages, BlocksPerSm, How>;
  static constexpr bool rounds = std::is_same_v<Result, Int8>;
  static constexpr bool prefetches_weight = false;

  __device__ static void multiply(typename Base::ProductSums& d, std::uint64_t a, std::uint64_t b,
                                  bool accumulate) {
    ptx::wgmma_int8<Base::product_columns>(d, a, b, accumulate);
  }
};

template <class C>
struct Shared : ConvShared<C> {
  // The factors and biases of a tile's columns; each warpgroup has its own.
  alignas(16) float2 terms[C::consumers][C::columns];
};

struct Arguments : ConvArguments {
  const float *weight_scale, *bias;
  float x_scale, residual_scale, inverse;
  // An epilogue that only cuts off goes with scaling before it, which costs nothing there: the
  // scales and biases have the factor `inverse` already, and so has `high`.
  bool cuts;
  float low, high;
};

// Bytes a, b, c, d of a row in lanes of four, two of each lane's columns and two eight further, as
// four neighbors each.
__device__ inline std::uint32_t neighbors(std::uint32_t pairs) {
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
class Consumer : ConvConsumer<C> {
  using Base = ConvConsumer<C>;
  using typename Base::Box;
  using Out = typename C::Out;

 public:
  __device__ Consumer(Shared<C>& shared, const Arguments& a, int warpgroup)
      : Base(shared, a, warpgroup), arguments_(a), terms_(shared.terms[warpgroup]) {}

  __device__ void run() {
    each_tile<C>(arguments_, [&](int pixel, int channel) {
      typename C::Accumulators d;
      if constexpr (C::split) {
        this->multiply(d);
        finish_part(d, pixel, channel);
      } else {
        float2 terms[own_terms] = {};
        load_terms(channel, terms);
        this->multiply(d);
        keep_terms(channel, terms);
        this->finish(pixel, channel,
                     [&](int panel, unsigned char* box, int) { write_panel(d, panel, box); });
      }
    });
    this->drain();
  }

 private:
  using Base::a_;
  static constexpr int own_terms = (C::columns + warpgroup_threads - 1) / warpgroup_threads;

  // The factor and the bias of a channel, on their way while the tile is multiplied.
  __device__ float2 term(int channel) const {
    if (channel >= a_.channels) return {};
    const float scale = arguments_.x_scale * __ldg(arguments_.weight_scale + channel);
    const float bias = __ldg(arguments_.bias + channel);
    return arguments_.cuts ? make_float2(scale * arguments_.inverse, bias * arguments_.inverse)
                           : make_float2(scale, bias);
  }
  __device__ void load_terms(int channel, float2 (&terms)[own_terms]) const {
    if (channel == terms_channel_) return;
#pragma unroll
    for (int i = 0; i < own_terms; ++i)
      terms[i] = term(channel + this->thread() + i * warpgroup_threads);
  }
  __device__ void keep_terms(int channel, const float2 (&terms)[own_terms]) {
    if (channel == terms_channel_) return;
    terms_channel_ = channel;
    this->sync();  // nobody reads those of the tile before any more
#pragma unroll
    for (int i = 0; i < own_terms; ++i)
      if (const int c = this->thread() + i * warpgroup_threads; c < C::columns)
        terms_[c] = terms[i];
    this->sync();
  }

  // Finishes the sums of a panel's columns and leaves them in its box.
  __device__ void write_panel(const typename C::Accumulators& d, int panel, unsigned char* box) {
    const std::uint32_t address = ptx::shared_address(box);
    const int at = panel * C::panel_columns, from = at % C::product_columns / 2;
    const auto& sums = d[at / C::product_columns];
    // By 16 columns, so that few registers are needed at a time: pairs of neighbors of this row
    // and the one eight below, and the same eight columns further.
#pragma unroll
    for (int j = 0; j < C::panel_columns / 8; j += 2) {
      float values[8];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float4 terms =
            *reinterpret_cast<const float4*>(&terms_[at + 8 * (j + w / 2) + first_column()]);
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
    if (arguments_.cuts) {
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = fmaxf(values[k], arguments_.low);
      if (a_.epilogue != Epilogue::relu6) return;
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = fminf(values[k], arguments_.high);
    } else {
      apply_any_epilogue(a_.epilogue, values);
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = fmaxf(values[k] * arguments_.inverse, arguments_.low);
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
        values[2 * w] = fmaf(arguments_.residual_scale, byte_of(pair, 0), values[2 * w]);
        values[2 * w + 1] = fmaf(arguments_.residual_scale, byte_of(pair, 1), values[2 * w + 1]);
      } else {
        const std::uint32_t word = ptx::load_word(Box::chunk(box, row, group) + 2 * first_column());
        values[2 * w] = fmaf(arguments_.residual_scale, half_of_word<Out>(word, 0), values[2 * w]);
        values[2 * w + 1] =
            fmaf(arguments_.residual_scale, half_of_word<Out>(word, 1), values[2 * w + 1]);
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
      const std::uint32_t upper = neighbors(pack_int8(v[0], v[1], v[4], v[5]));
      const std::uint32_t lower = neighbors(pack_int8(v[2], v[3], v[6], v[7]));
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

  // Sums up what the thread blocks of the cluster have, of this one's share of the rows.
  __device__ void finish_part(const typename C::Accumulators& d, int pixel, int channel) {
    auto* const partial = this->template store_partials<std::int32_t, int2>(d);
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
        for (int k = 0; k < 4; ++k) values[k] = fmaf(arguments_.residual_scale, more[k], values[k]);
      }
      end(values);
      store_pack<4>(static_cast<Out*>(a_.y_data) + to, values);
    }
  }

  const Arguments& arguments_;
  float2 (&terms_)[C::columns];
  int terms_channel_ = -1;  // the first whose terms are kept
};

template <class C>
__global__ void __launch_bounds__(C::threads, C::blocks_per_sm)
    int8_conv_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  run_pipeline<C, Consumer<C>>(*reinterpret_cast<Shared<C>*>(memory), a);
}

template <class C>
void run(const Int8Problem& p, const Int8Tiles& tiles, const Int8Pointers& o, int multiprocessors,
         cudaStream_t stream) {
  Arguments a{};
  set_arguments<C>(a, {.windows = windows_of(p.op, p.x, p.weight, p.x.c / 2),
                       .result = p.y,
                       .x = o.x,
                       .weight = o.weight,
                       .residual = o.residual,
                       .y = o.y});
  a.weight_scale = o.weight_scale;
  a.bias = o.bias;
  a.x_scale = p.op.x_scale;
  a.inverse = C::rounds ? 1.0f / p.op.y_scale : 1.0f;
  a.epilogue = p.op.epilogue;
  const bool relu = a.epilogue == Epilogue::relu || a.epilogue == Epilogue::relu6;
  a.cuts = relu || a.epilogue == Epilogue::none;
  a.low = relu ? 0.0f : C::rounds ? -127.0f : -std::numeric_limits<float>::infinity();
  a.high = 6.0f * a.inverse;
  a.residual_scale = p.op.residual_scale * (a.cuts ? a.inverse : 1.0f);
  launch_conv<C, Shared<C>>(int8_conv_kernel<C>, a, tiles.split, multiprocessors, stream);
  check(last_error(), "a convolution of integers");
}

template <class Out>
void dispatch(const Int8Problem& problem, const Int8Tiles& tiles, const Int8Pointers& operands,
              int multiprocessors, cudaStream_t stream) {
  const auto call = [&]<class C>() { run<C>(problem, tiles, operands, multiprocessors, stream); };
  const bool deep = tiles.depth == 128;
  if (tiles.rows == 64)
    return call.template operator()<Config<Out, 64, 64, 64, 4, 3, Sharing::tile>>();
  if (tiles.columns == 256)
    return call.template operator()<Config<Out, 128, 256, 64, 4, 1, Sharing::none>>();
  if (tiles.columns == 128 && deep)
    return call.template operator()<Config<Out, 128, 128, 64, 3, 2, Sharing::none>>();
  if (tiles.columns == 128)
    return call.template operator()<Config<Out, 128, 128, 32, 5, 2, Sharing::none>>();
  if (deep) return call.template operator()<Config<Out, 128, 64, 64, 3, 3, Sharing::none>>();
  return call.template operator()<Config<Out, 128, 64, 32, 4, 3, Sharing::none>>();
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
