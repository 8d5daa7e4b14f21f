// Convolutions of 16-bit images with channels last, by the pipeline of conv_pipeline.h: y[m, o] =
// epilogue(sum[m, o] + bias[o] + residual[m, o]), which overwrites y.

#include "ridge/gpu/sm90/conv/conv.h"
#include "ridge/gpu/sm90/conv/conv_pipeline.h"
#include "ridge/gpu/sm90/epilogue.h"

namespace ridge::gpu::sm90 {
namespace {

template <class Element, int Rows, int Columns, int Depth, int Stages, int BlocksPerSm,
          Sharing How = Sharing::none>
struct Config
    : ConvConfig<Element, Element, float, Rows, Columns, Depth, Stages, BlocksPerSm, How> {
  using T = Element;
  using Base = ConvConfig<Element, Element, float, Rows, Columns, Depth, Stages, BlocksPerSm, How>;
  static constexpr bool prefetches_weight = true;

  __device__ static void multiply(typename Base::ProductSums& d, std::uint64_t a, std::uint64_t b,
                                  bool accumulate) {
    ptx::wgmma<T, Base::product_columns, false, false>(d, a, b, accumulate);
  }
};

struct Arguments : ConvArguments {
  const void* bias;
};

// The bias of two neighboring channels, if there are such.
template <class T>
__device__ std::uint32_t bias_of(const Arguments& a, int channel) {
  if (a.bias == nullptr || channel >= a.channels) return 0;
  return __ldg(reinterpret_cast<const std::uint32_t*>(static_cast<const T*>(a.bias) + channel));
}

template <class C>
class Consumer : ConvConsumer<C> {
  using Base = ConvConsumer<C>;
  using typename Base::Box;
  using T = typename C::T;

 public:
  __device__ Consumer(ConvShared<C>& shared, const Arguments& a, int warpgroup)
      : Base(shared, a, warpgroup), arguments_(a) {}

  __device__ void run() {
    each_tile<C>(arguments_, [&](int pixel, int channel) {
      typename C::Accumulators d;
      if constexpr (!C::split) load_bias(channel);
      this->multiply(d);
      if constexpr (C::split)
        finish_part(d, pixel, channel);
      else
        this->finish(pixel, channel, [&](int panel, unsigned char* box, int first) {
          write_panel(d, panel, box, first);
        });
    });
    this->drain();
  }

 private:
  using Base::a_;

  // On its way while the tile is multiplied.
  __device__ void load_bias(int channel) {
    if (channel == bias_channel_) return;
    bias_channel_ = channel;
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j)
      bias_[j] = bias_of<T>(arguments_, channel + 8 * j + first_column());
  }

  // Finishes the sums of a panel's columns, from `channel` on, and leaves them in its box.
  __device__ void write_panel(const typename C::Accumulators& d, int panel, unsigned char* box,
                              int channel) {
    const std::uint32_t address = ptx::shared_address(box);
    const int at = panel * C::panel_columns, from = at % C::product_columns / 2;
    const auto& sums = d[at / C::product_columns];
    const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
    // By 16 columns, so that few registers are needed at a time.
#pragma unroll
    for (int j = 0; j < C::panel_columns / 8; j += 2) {
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

  // Sums up what the thread blocks of the cluster have, of this one's share of the rows.
  __device__ void finish_part(const typename C::Accumulators& d, int pixel, int channel) {
    float* const partial = this->template store_partials<float, float2>(d);
    const int parts = cluster_blocks_of<C>(a_), rank = ptx::cluster_rank();
    const int rows = C::rows / parts;
    const std::uint32_t own = ptx::shared_address(partial);
    constexpr int step = C::consumers * warpgroup_threads * 4;
    const auto place_at = [&](int i) {
      return ConvPlace{pixel + rank * rows + i / C::columns, channel + i % C::columns};
    };
    int i = static_cast<int>(threadIdx.x) * 4;
    Addends addends = addends_at(place_at(i));  // on their way while blocks wait for each other
    ptx::cluster_sync();
    for (; i < rows * C::columns; i += step) {
      const ConvPlace place = place_at(i);
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

  // What is added to the sums of four neighboring channels.
  struct Addends {
    std::uint32_t bias[2];
    uint2 residual;
  };
  __device__ bool exists(const ConvPlace& place) const {
    return place.pixel < a_.pixels && place.channel < a_.channels;
  }
  __device__ std::int64_t offset_of(const ConvPlace& place) const {
    return static_cast<std::int64_t>(place.pixel) * a_.channels + place.channel;
  }
  __device__ Addends addends_at(const ConvPlace& place) const {
    Addends addends{};
    addends.bias[0] = bias_of<T>(arguments_, place.channel);
    addends.bias[1] = bias_of<T>(arguments_, place.channel + 2);
    if (a_.residual_data != nullptr && exists(place))
      addends.residual = *reinterpret_cast<const uint2*>(static_cast<const T*>(a_.residual_data) +
                                                         offset_of(place));
    return addends;
  }

  const Arguments& arguments_;
  int bias_channel_ = -1;  // the first of bias_
  std::uint32_t bias_[C::columns / 8];
};

template <class C>
__global__ void __launch_bounds__(C::threads, C::blocks_per_sm)
    conv_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  run_pipeline<C, Consumer<C>>(*reinterpret_cast<ConvShared<C>*>(memory), a);
}

template <class C>
void run(const ConvProblem& problem, const ConvTiles& tiles, const ConvPointers& o,
         int multiprocessors, cudaStream_t stream) {
  Arguments a{};
  set_arguments<C>(a,
                   {.windows = windows_of(problem.geometry, problem.x, problem.weight, problem.x.c),
                    .result = problem.y,
                    .x = o.x,
                    .weight = o.weight,
                    .residual = o.residual,
                    .y = const_cast<void*>(o.y)});
  a.bias = o.bias;
  a.epilogue = problem.epilogue;
  launch_conv<C, ConvShared<C>>(conv_kernel<C>, a, tiles.split, multiprocessors, stream);
  check(last_error(), "a convolution");
}

template <class T>
void dispatch(const ConvProblem& problem, const ConvTiles& tiles, const ConvPointers& operands,
              int multiprocessors, cudaStream_t stream) {
  const auto is = [&](int rows, int columns) {
    return tiles.rows == rows && tiles.columns == columns;
  };
  const auto call = [&]<class C>() { run<C>(problem, tiles, operands, multiprocessors, stream); };
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
  dispatch_16_bit(problem.dtype, [&]<class T>() {
    dispatch<T>(problem, tiles, operands, multiprocessors, stream);
  });
}

}  // namespace ridge::gpu::sm90
