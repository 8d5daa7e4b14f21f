// Rounding to s8, and convolutions of it by plain sums: see ops/int8.h.

#include "ridge/ops/int8.h"

#include "ridge/gpu/kernels/conv/int8_conv.h"
#include "ridge/gpu/kernels/conv/int8_epilogue.h"
#include "ridge/gpu/kernels/nest.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge {
namespace gpu {
namespace {

struct Times {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};

// A block for each kernel of the weight.
template <class T>
__global__ void __launch_bounds__(256)
    weights_kernel(std::int64_t length, const T* w, Int8* q, float* scales) {
  begin_kernel();
  const std::int64_t first = blockIdx.x * length;
  float amax = 0;
  for (std::int64_t i = threadIdx.x; i < length; i += blockDim.x)
    amax = fmaxf(amax, fabsf(load(&w[first + i])));
  amax = reduce_block<Max>(amax);
  const float scale = amax > 0 ? __fdiv_rn(amax, 127.0f) : 1.0f;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  for (std::int64_t i = threadIdx.x; i < length; i += blockDim.x)
    store(&q[first + i], __fdiv_rn(load(&w[first + i]), scale));
}

// What kernels know of a convolution; a weight's n, c, h, w are O, C / G, R, S.
struct Dims {
  ImageShape x, y, weight;
  int stride[2], padding[2], dilation[2];
  std::int64_t per_group;  // results of a group

  explicit Dims(const Int8Problem& p)
      : x(p.x), y(p.y), weight(p.weight), per_group(p.weight.n / p.op.groups) {
    for (std::size_t d = 0; d < 2; ++d) {
      stride[d] = static_cast<int>(p.op.stride[d]);
      padding[d] = static_cast<int>(p.op.padding[d]);
      dilation[d] = static_cast<int>(p.op.dilation[d]);
    }
  }
};

// The epilogue of sums, applied before they are stored.
template <class Out>
struct Finish {
  const float *weight_scale, *bias;
  const Out* residual;  // null where there is none
  float x_scale, residual_scale, inverse;
  Epilogue epilogue;

  Finish(const Int8Problem& p, const Int8Pointers& o)
      : weight_scale(o.weight_scale),
        bias(o.bias),
        residual(static_cast<const Out*>(o.residual)),
        x_scale(p.op.x_scale),
        residual_scale(p.op.residual_scale),
        inverse(p.op.out == DType::s8 ? 1.0f / p.op.y_scale : 1.0f),
        epilogue(p.op.epilogue) {}

  // Writes the results of N sums of channels from `channel` on, which lie at `at`.
  template <int N, class Sum>
  __device__ void write(const Sum (&sums)[N], std::int64_t channel, std::int64_t at, Out* y) const {
    float values[N];
#pragma unroll
    for (int k = 0; k < N; ++k)
      values[k] =
          fmaf(static_cast<float>(sums[k]), x_scale * weight_scale[channel + k], bias[channel + k]);
    if (residual) {
      float more[N];
      load_pack<N>(residual + at, more);
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = fmaf(residual_scale, more[k], values[k]);
    }
    apply_any_epilogue(epilogue, values);
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] *= inverse;
    store_pack<N>(y + at, values);
  }
};

template <class Index, class Out>
__global__ void __launch_bounds__(elementwise_threads)
    conv_kernel(const __grid_constant__ Dims d, Finish<Out> finish, const Int8* x,
                const Int8* weight, Out* y) {
  begin_kernel();
  const Index i = thread_index<Index>();
  const auto channels = static_cast<Index>(d.y.c), h = static_cast<Index>(d.y.h);
  const auto w = static_cast<Index>(d.y.w);
  if (i >= static_cast<Index>(d.y.n) * h * w * channels) return;
  const Index pixel = i / channels, line = pixel / w, image = line / h;
  const auto channel = static_cast<std::int64_t>(i - pixel * channels);
  const auto column = static_cast<int>(pixel - line * w), row = static_cast<int>(line - image * h);
  const std::int64_t first = channel / d.per_group * d.weight.c;  // channel of the group
  int sum[1] = {};
  for (int r = 0; r < d.weight.h; ++r) {
    const int from_row = row * d.stride[0] - d.padding[0] + r * d.dilation[0];
    if (from_row < 0 || from_row >= d.x.h) continue;
    for (int s = 0; s < d.weight.w; ++s) {
      const int from_column = column * d.stride[1] - d.padding[1] + s * d.dilation[1];
      if (from_column < 0 || from_column >= d.x.w) continue;
      const Int8* from =
          x +
          ((static_cast<std::int64_t>(image) * d.x.h + from_row) * d.x.w + from_column) * d.x.c +
          first;
      const Int8* with = weight + ((channel * d.weight.h + r) * d.weight.w + s) * d.weight.c;
      for (std::int64_t c = 0; c < d.weight.c; ++c) sum[0] += from[c].bits * with[c].bits;
    }
  }
  finish.write(sum, channel, static_cast<std::int64_t>(i), y);
}

// Each channel for itself: a thread gives `columns` neighbors of a row for 4 channels, so that it
// uses what it read of x for several of them. Threads of a warp take neighboring channels. Sums of
// some products are exact in f32 too, whose units are twice as many as those for integers.
constexpr int depth_pack = 4, depth_columns = 4;

// Where one works: threads are counted by channels, then columns, rows and images.
struct DepthPlace {
  std::int64_t image;
  int row, column, channel;

  __device__ DepthPlace(const ImageShape& y, std::uint32_t i) {
    const auto packs = static_cast<std::uint32_t>(y.c / depth_pack);
    const auto across = static_cast<std::uint32_t>((y.w + depth_columns - 1) / depth_columns);
    const auto h = static_cast<std::uint32_t>(y.h);
    const std::uint32_t place = i / packs, line = place / across;
    channel = static_cast<int>(i - place * packs) * depth_pack;
    column = static_cast<int>(place - line * across) * depth_columns;
    image = line / h;
    row = static_cast<int>(line - line / h * h);
  }
};

template <int K, int stride, class Out>
__global__ void __launch_bounds__(elementwise_threads)
    depthwise_kernel(const __grid_constant__ Dims d, Finish<Out> finish, std::uint32_t threads,
                     const Int8* x, const Int8* weight, Out* y) {
  begin_kernel();
  const std::uint32_t thread = thread_index<std::uint32_t>();
  if (thread >= threads) return;
  const DepthPlace place(d.y, thread);
  constexpr int width = (depth_columns - 1) * stride + K;
  float sums[depth_columns][depth_pack] = {};
  // The taps of 4 channels lie side by side: as many words as a channel has taps.
  std::uint32_t taps[K * K];
  const auto* words = reinterpret_cast<const std::uint32_t*>(weight + place.channel * K * K);
#pragma unroll
  for (int t = 0; t < K * K; ++t) taps[t] = __ldg(words + t);
#pragma unroll
  for (int r = 0; r < K; ++r) {
    const int row = place.row * stride - d.padding[0] + r;
    if (row < 0 || row >= d.x.h) continue;
    const Int8* line = x + (place.image * d.x.h + row) * d.x.w * d.x.c + place.channel;
    const int first = place.column * stride - d.padding[1];
    std::uint32_t seen[width];
#pragma unroll
    for (int t = 0; t < width; ++t) {
      const int column = first + t;
      seen[t] = 0;
      if (column >= 0 && column < d.x.w)
        seen[t] = *reinterpret_cast<const std::uint32_t*>(line + column * d.x.c);
    }
#pragma unroll
    for (int v = 0; v < depth_pack; ++v) {
      float values[width];
#pragma unroll
      for (int t = 0; t < width; ++t) values[t] = byte_of(seen[t], v);
#pragma unroll
      for (int s = 0; s < K; ++s) {
        const int at = v * K * K + r * K + s;
        const float w = byte_of(taps[at / 4], at % 4);
#pragma unroll
        for (int k = 0; k < depth_columns; ++k)
          sums[k][v] = fmaf(values[k * stride + s], w, sums[k][v]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < depth_columns; ++k) {
    if (place.column + k >= d.y.w) break;
    const std::int64_t pixel = (place.image * d.y.h + place.row) * d.y.w + place.column + k;
    finish.write(sums[k], place.channel, pixel * d.y.c + place.channel, y);
  }
}

std::int64_t depth_threads(const Int8Problem& p) {
  return p.y.n * p.y.h * ((p.y.w + depth_columns - 1) / depth_columns) * (p.y.c / depth_pack);
}

bool is_depthwise(const Int8Problem& p, const Int8Pointers& o) {
  const Int8Conv2d& op = p.op;
  const std::int64_t k = p.weight.h;
  return op.groups == p.x.c && p.weight.n == p.x.c && p.x.c % depth_pack == 0 && p.weight.w == k &&
         (k == 3 || k == 5) && op.dilation == Pair{1, 1} &&
         (op.stride == Pair{1, 1} || op.stride == Pair{2, 2}) && is_aligned(o.x, depth_pack) &&
         is_aligned(o.weight, depth_pack) && is_aligned(o.y, depth_pack * size_of(op.out)) &&
         is_aligned(o.residual, depth_pack * size_of(op.out)) &&
         depth_threads(p) < (std::int64_t{1} << 31);
}

template <class Out>
void run_depthwise(const Context& gpu, const Int8Problem& p, const Int8Pointers& o) {
  const std::int64_t threads = depth_threads(p);
  const auto with = [&](auto kernel) {
    launch(gpu, kernel, dim3(blocks_for(threads, elementwise_threads)), dim3(elementwise_threads),
           0, Dims(p), Finish<Out>(p, o), static_cast<std::uint32_t>(threads),
           static_cast<const Int8*>(o.x), static_cast<const Int8*>(o.weight),
           static_cast<Out*>(o.y));
  };
  const bool strided = p.op.stride[0] == 2;
  if (p.weight.h == 3)
    with(strided ? depthwise_kernel<3, 2, Out> : depthwise_kernel<3, 1, Out>);
  else
    with(strided ? depthwise_kernel<5, 2, Out> : depthwise_kernel<5, 1, Out>);
}

}  // namespace

void int8_conv_direct(const Context& gpu, const Int8Problem& p, const Int8Pointers& o) {
  dispatch_rounded(p.op.out, [&]<class Out>() {
    if (is_depthwise(p, o)) return run_depthwise<Out>(gpu, p, o);
    const std::int64_t count = p.y.n * p.y.pixels() * p.y.c;
    dispatch_index(count, [&]<class Index>() {
      launch(gpu, conv_kernel<Index, Out>, dim3(blocks_for(count, elementwise_threads)),
             dim3(elementwise_threads), 0, Dims(p), Finish<Out>(p, o),
             static_cast<const Int8*>(o.x), static_cast<const Int8*>(o.weight),
             static_cast<Out*>(o.y));
    });
  });
}

}  // namespace gpu

KernelPtr Int8Quantize::gpu(GpuPrepare& prepare) const {
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return gpu::map_elements<T, Int8>(prepare, gpu::Times{1.0f / scale});
  });
}

KernelPtr Int8Weights::gpu(GpuPrepare& prepare) const {
  const std::int64_t kernels = prepare.in[0].shape[0];
  const std::int64_t length = kernels == 0 ? 0 : prepare.in[0].numel() / kernels;
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() {
    return make_kernel([&gpu = prepare.gpu, kernels, length](const Launch& call) {
      if (kernels == 0) return;
      gpu::launch(gpu, gpu::weights_kernel<T>, dim3(static_cast<unsigned>(kernels)), dim3(256), 0,
                  length, call.in<T>(0), call.out<Int8>(0), call.out<float>(1));
    });
  });
}

}  // namespace ridge
