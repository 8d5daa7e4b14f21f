#include "ridge/gpu/kernels/conv/conv_direct.h"

#include <algorithm>

#include "ridge/gpu/kernels/conv/conv_epilogue.h"
#include "ridge/gpu/kernels/nest.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge::gpu {
namespace {

// What kernels know of a convolution; a weight's n, c, h, w are O, C / G, R, S.
struct ConvDims {
  ImageShape x, y, weight;
  ImageStrides xs, ys, ws;
  int stride[2], padding[2], dilation[2];
  std::int64_t per_group;  // results of a group

  ConvDims(const ConvGeometry& g, const Shape& x_shape, const Shape& weight_shape,
           const Shape& y_shape)
      : x(x_shape, g.layout),
        y(y_shape, g.layout),
        weight(weight_shape, g.layout),
        xs(x, g.layout),
        ys(y, g.layout),
        ws(weight, g.layout),
        per_group(weight.n / g.groups) {
    for (std::size_t d = 0; d < 2; ++d) {
      stride[d] = static_cast<int>(g.stride[d]);
      padding[d] = static_cast<int>(g.padding[d]);
      dilation[d] = static_cast<int>(g.dilation[d]);
    }
  }
};

// What is added to a sum, and done to it, before it is written.
template <class T>
struct Finish {
  const T *bias, *residual;  // null where there is none
  Epilogue epilogue;

  // The bias of N channels, or zeros.
  template <int N>
  __device__ void load_bias(std::int64_t channel, float (&values)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = bias ? load(&bias[channel + k]) : 0.0f;
  }

  // Finishes N sums, which lie at `at`.
  template <int N>
  __device__ void apply(const float (&biases)[N], std::int64_t at, float (&sums)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] += biases[k];
    if (residual) {
      float more[N];
      load_pack<N>(residual + at, more);
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k] += more[k];
    }
    apply_epilogue(epilogue, sums);
  }

  __device__ float operator()(float sum, std::int64_t channel, std::int64_t at) const {
    float biases[1], sums[1] = {sum};
    load_bias(channel, biases);
    apply(biases, at, sums);
    return sums[0];
  }
};

// Element i of a tensor of this shape in memory: where it is.
struct Element {
  std::int64_t n, c, h, w;

  __device__ Element(const ImageShape& s, const ImageStrides& strides, std::int64_t i) {
    n = i / strides.n;
    c = i / strides.c % s.c;
    h = i / strides.h % s.h;
    w = i / strides.w % s.w;
  }
};

template <class T>
__global__ void conv_kernel(const __grid_constant__ ConvDims d, Finish<T> finish, const T* x,
                            const T* weight, T* y) {
  begin_kernel();
  const std::int64_t i = thread_index<std::int64_t>();
  if (i >= d.y.n * d.ys.n) return;
  const Element e(d.y, d.ys, i);
  const std::int64_t first = e.c / d.per_group * d.weight.c;  // channel of the group
  float sum = 0;
  for (std::int64_t r = 0; r < d.weight.h; ++r) {
    const std::int64_t row = e.h * d.stride[0] - d.padding[0] + r * d.dilation[0];
    if (row < 0 || row >= d.x.h) continue;
    for (std::int64_t s = 0; s < d.weight.w; ++s) {
      const std::int64_t column = e.w * d.stride[1] - d.padding[1] + s * d.dilation[1];
      if (column < 0 || column >= d.x.w) continue;
      const T* from = x + d.xs.at(e.n, first, row, column);
      const T* with = weight + d.ws.at(e.c, 0, r, s);
      for (std::int64_t c = 0; c < d.weight.c; ++c)
        sum += load(&from[c * d.xs.c]) * load(&with[c * d.ws.c]);
    }
  }
  store(&y[i], finish(sum, e.c, i));
}

template <class T>
__global__ void finish_kernel(Finish<T> finish, std::int64_t n, std::int64_t channel_stride,
                              std::int64_t channels, T* y) {
  begin_kernel();
  const std::int64_t i = thread_index<std::int64_t>();
  if (i < n) store(&y[i], finish(load(&y[i]), i / channel_stride % channels, i));
}

// Where the window, of several around an element of x, lies that has the element at tap r; below 0
// if there is none.
__device__ std::int64_t window_at(std::int64_t row, int padding, std::int64_t r, int dilation,
                                  int stride, std::int64_t windows) {
  const auto from = static_cast<int>(row + padding - r * dilation);
  const int window = from / stride;
  return from < 0 || window * stride != from || window >= windows ? -1 : window;
}

template <class T>
__global__ void conv_input_grad_kernel(const __grid_constant__ ConvDims d, const T* dy,
                                       const T* weight, T* dx) {
  begin_kernel();
  const std::int64_t i = thread_index<std::int64_t>();
  if (i >= d.x.n * d.xs.n) return;
  const Element e(d.x, d.xs, i);
  const std::int64_t group = e.c / d.weight.c, c = e.c - group * d.weight.c;
  float sum = 0;
  for (std::int64_t r = 0; r < d.weight.h; ++r) {
    const std::int64_t row = window_at(e.h, d.padding[0], r, d.dilation[0], d.stride[0], d.y.h);
    if (row < 0) continue;
    for (std::int64_t s = 0; s < d.weight.w; ++s) {
      const std::int64_t column =
          window_at(e.w, d.padding[1], s, d.dilation[1], d.stride[1], d.y.w);
      if (column < 0) continue;
      const T* from = dy + d.ys.at(e.n, group * d.per_group, row, column);
      const T* with = weight + d.ws.at(group * d.per_group, c, r, s);
      for (std::int64_t o = 0; o < d.per_group; ++o)
        sum += load(&from[o * d.ys.c]) * load(&with[o * d.ws.n]);
    }
  }
  store(&dx[i], sum);
}

constexpr int max_weight_threads = 256;

// A block for each element of the weight.
template <class T>
__global__ void __launch_bounds__(max_weight_threads)
    conv_weight_grad_kernel(const __grid_constant__ ConvDims d, const T* dy, const T* x,
                            T* dweight) {
  begin_kernel();
  const std::int64_t i = blockIdx.x;
  const Element e(d.weight, d.ws, i);
  const std::int64_t channel = e.n / d.per_group * d.weight.c + e.c;
  const std::int64_t pixels = d.y.h * d.y.w;
  float sum = 0;
  for (std::int64_t k = threadIdx.x; k < d.y.n * pixels; k += blockDim.x) {
    const std::int64_t n = k / pixels, line = k / d.y.w;
    const std::int64_t column = k - line * d.y.w, row = line - n * d.y.h;
    const std::int64_t from_row = row * d.stride[0] - d.padding[0] + e.h * d.dilation[0];
    const std::int64_t from_column = column * d.stride[1] - d.padding[1] + e.w * d.dilation[1];
    if (from_row < 0 || from_row >= d.x.h || from_column < 0 || from_column >= d.x.w) continue;
    sum += load(&dy[d.ys.at(n, e.n, row, column)]) *
           load(&x[d.xs.at(n, channel, from_row, from_column)]);
  }
  sum = reduce_block<Sum>(sum);
  if (threadIdx.x == 0) store(&dweight[i], sum);
}

// Each channel for itself, with channels last. A block takes some packs of channels (threadIdx.x),
// whose weights it holds in shared memory as [tap][channel], and places (threadIdx.y).

constexpr int depth_threads = 256, depth_columns = 4;

// How blocks are cut, with packs of N channels.
struct DepthCut {
  unsigned packs, chunks;

  DepthCut(std::int64_t channels, int n) {
    const auto all = static_cast<unsigned>(channels / n);
    packs = 8;
    // The width that leaves the fewest threads without channels.
    for (const unsigned width : {4u, 2u, 1u})
      if ((all + width - 1) / width * width < (all + packs - 1) / packs * packs) packs = width;
    chunks = (all + packs - 1) / packs;
  }
  unsigned lanes() const { return depth_threads / packs; }
  dim3 block() const { return dim3(packs, lanes()); }
  dim3 grid(std::int64_t places) const { return dim3(blocks_for(places, lanes()) * chunks); }
};

// In the reverse order of taps if `flipped`.
template <int N, class T>
__device__ void load_weights(const ConvDims& d, bool flipped, const T* weight, int first,
                             float* taps) {
  const int count = static_cast<int>(d.weight.h * d.weight.w);
  const int packs = static_cast<int>(blockDim.x), channels = packs * N;
  const int thread = static_cast<int>(threadIdx.y) * packs + static_cast<int>(threadIdx.x);
  for (int i = thread; i < count * channels; i += depth_threads) {
    const int c = i / count, tap = i - c * count;
    taps[(flipped ? count - 1 - tap : tap) * channels + c] =
        first + c < d.weight.n ? load(&weight[(first + c) * count + tap]) : 0.0f;
  }
  __syncthreads();
}

// Where a thread works: a place of `columns` neighbors in rows of an image of these extents, and
// the first of N channels.
template <int N>
struct DepthPlace {
  int n, row, column, channel;
  bool exists;

  __device__ DepthPlace(const ImageShape& s, int columns, int first) {
    const auto across = static_cast<unsigned>((s.w + columns - 1) / columns);
    const auto h = static_cast<unsigned>(s.h);
    const unsigned place =
        blockIdx.x / ((static_cast<unsigned>(s.c) + blockDim.x * N - 1) / (blockDim.x * N)) *
            blockDim.y +
        threadIdx.y;
    const unsigned line = place / across, image = line / h;
    n = static_cast<int>(image);
    row = static_cast<int>(line - image * h);
    column = static_cast<int>(place - line * across) * columns;
    channel = first + static_cast<int>(threadIdx.x) * N;
    exists = image < s.n && channel < s.c;
  }
};

// The packs of `width` neighbors from `column` on; 0 beyond the row.
template <int width, int N, class T>
__device__ void load_neighbors(const T* row, int column, int columns, std::int64_t step,
                               Held<T, N> (&packs)[width]) {
#pragma unroll
  for (int t = 0; t < width; ++t) {
    packs[t] = Held<T, N>{};
    if (column + t >= 0 && column + t < columns)
      packs[t] = *reinterpret_cast<const Held<T, N>*>(row + (column + t) * step);
  }
}

// A thread gives depth_columns neighbors of a row for N channels, so that it uses what it read of
// x for several of them. Flipped, with y as x: the gradient of x, if the stride is 1.
template <int K, int stride, int N, class T>
__global__ void __launch_bounds__(depth_threads)
    depthwise_kernel(const __grid_constant__ ConvDims d, bool flipped, Finish<T> finish,
                     unsigned chunks, const T* x, const T* weight, T* y) {
  begin_kernel();
  __shared__ float taps[K * K * 8 * N];
  const int channels = static_cast<int>(blockDim.x) * N;
  const int first = static_cast<int>(blockIdx.x % chunks) * channels;
  load_weights<N>(d, flipped, weight, first, taps);
  const DepthPlace<N> place(d.y, depth_columns, first);
  if (!place.exists) return;
  float sum[depth_columns][N] = {};
  constexpr int unrolled = K == 3 ? 3 : 1;
#pragma unroll unrolled
  for (int r = 0; r < K; ++r) {
    const int row = place.row * stride - d.padding[0] + r;
    if (row < 0 || row >= d.x.h) continue;
    constexpr int width = (depth_columns - 1) * stride + K;
    Held<T, N> packs[width];
    load_neighbors(x + d.xs.at(place.n, 0, row, 0) + place.channel,
                   place.column * stride - d.padding[1], static_cast<int>(d.x.w), d.xs.w, packs);
    const float* with = taps + r * K * channels + static_cast<int>(threadIdx.x) * N;
#pragma unroll
    for (int s = 0; s < K; ++s) {
      float w[N];
#pragma unroll
      for (int v = 0; v < N; ++v) w[v] = with[s * channels + v];
#pragma unroll
      for (int k = 0; k < depth_columns; ++k)
#pragma unroll
        for (int v = 0; v < N; ++v) sum[k][v] += packs[k * stride + s][v] * w[v];
    }
  }
  float biases[N];
  finish.load_bias(place.channel, biases);
#pragma unroll
  for (int k = 0; k < depth_columns; ++k) {
    if (place.column + k >= d.y.w) break;
    const std::int64_t at = d.ys.at(place.n, 0, place.row, place.column + k) + place.channel;
    finish.apply(biases, at, sum[k]);
    store_pack<N>(y + at, sum[k]);
  }
}

// The gradient for any stride.
template <int N, class T>
__global__ void __launch_bounds__(depth_threads)
    depthwise_input_grad_kernel(const __grid_constant__ ConvDims d, unsigned chunks, const T* dy,
                                const T* weight, T* dx) {
  begin_kernel();
  float* const taps_memory = dynamic_shared<float>();
  const int channels = static_cast<int>(blockDim.x) * N;
  const int first = static_cast<int>(blockIdx.x % chunks) * channels;
  load_weights<N>(d, false, weight, first, taps_memory);
  const DepthPlace<N> place(d.x, 1, first);
  if (!place.exists) return;
  float sum[N] = {};
  const int kernel = static_cast<int>(d.weight.h);
  for (int r = 0; r < kernel; ++r) {
    const std::int64_t row =
        window_at(place.row, d.padding[0], r, d.dilation[0], d.stride[0], d.y.h);
    if (row < 0) continue;
#pragma unroll 3
    for (int s = 0; s < kernel; ++s) {
      const std::int64_t column =
          window_at(place.column, d.padding[1], s, d.dilation[1], d.stride[1], d.y.w);
      if (column < 0) continue;
      float values[N];
      load_pack<N>(dy + d.ys.at(place.n, 0, row, column) + place.channel, values);
      const float* with =
          taps_memory + (r * kernel + s) * channels + static_cast<int>(threadIdx.x) * N;
#pragma unroll
      for (int v = 0; v < N; ++v) sum[v] += values[v] * with[v];
    }
  }
  store_pack<N>(dx + d.xs.at(place.n, 0, place.row, place.column) + place.channel, sum);
}

// The sums over a part of the lines of y (blockIdx.z), for one row of taps (blockIdx.y):
// partial[part][tap][channel].
template <int K, int stride, int N, class T>
__global__ void __launch_bounds__(depth_threads)
    depthwise_weight_grad_kernel(const __grid_constant__ ConvDims d, unsigned lines_per_part,
                                 const T* dy, const T* x, float* partial) {
  begin_kernel();
  __shared__ float sums[depth_threads][N + 1];
  const int packs = static_cast<int>(blockDim.x), lanes = static_cast<int>(blockDim.y);
  const int pack = static_cast<int>(threadIdx.x), lane = static_cast<int>(threadIdx.y);
  const int channel = (static_cast<int>(blockIdx.x) * packs + pack) * N;
  const int r = static_cast<int>(blockIdx.y);
  const auto across = static_cast<unsigned>((d.y.w + depth_columns - 1) / depth_columns);
  const auto h = static_cast<unsigned>(d.y.h);
  const unsigned begin = blockIdx.z * lines_per_part;
  const unsigned end = min(begin + lines_per_part, static_cast<unsigned>(d.y.n) * h);
  float sum[K][N] = {};
  for (unsigned place = begin * across + threadIdx.y; channel < d.x.c && place < end * across;
       place += blockDim.y) {
    const unsigned line = place / across, n = line / h;
    const int row = static_cast<int>(line - n * h) * stride - d.padding[0] + r;
    const int column = static_cast<int>(place - line * across) * depth_columns;
    if (row < 0 || row >= d.x.h) continue;
    constexpr int width = (depth_columns - 1) * stride + K;
    Held<T, N> grads[depth_columns], values[width];
    load_neighbors(dy + static_cast<std::int64_t>(line) * d.ys.h + channel, column,
                   static_cast<int>(d.y.w), d.ys.w, grads);
    load_neighbors(x + d.xs.at(n, 0, row, 0) + channel, column * stride - d.padding[1],
                   static_cast<int>(d.x.w), d.xs.w, values);
#pragma unroll
    for (int k = 0; k < depth_columns; ++k)
#pragma unroll
      for (int s = 0; s < K; ++s)
#pragma unroll
        for (int v = 0; v < N; ++v) sum[s][v] += grads[k][v] * values[k * stride + s][v];
  }
#pragma unroll
  for (int s = 0; s < K; ++s) {
    __syncthreads();
#pragma unroll
    for (int v = 0; v < N; ++v) sums[lane * packs + pack][v] = sum[s][v];
    __syncthreads();
    const int i = lane * packs + pack, c = static_cast<int>(blockIdx.x) * packs * N + i;
    if (i >= packs * N || c >= d.x.c) continue;
    float total = 0;
    for (int l = 0; l < lanes; ++l) total += sums[l * packs + i / N][i % N];
    partial[(blockIdx.z * (K * K) + r * K + s) * d.x.c + c] = total;
  }
}

template <class T>
__global__ void depthwise_weight_sums_kernel(std::int64_t channels, std::int64_t taps, int parts,
                                             const float* partial, T* dweight) {
  begin_kernel();
  const std::int64_t i = thread_index<std::int64_t>();
  if (i >= channels * taps) return;
  const std::int64_t tap = i / channels, c = i - tap * channels;
  float sum = 0;
#pragma unroll 4
  for (int p = 0; p < parts; ++p) sum += partial[p * channels * taps + i];
  store(&dweight[c * taps + tap], sum);
}

bool is_depthwise(const ConvGeometry& g, const ImageShape& image, const ImageShape& weight) {
  const std::int64_t size = weight.h;
  return g.layout == ImageLayout::nhwc && g.groups == image.c && weight.n == image.c &&
         weight.w == size && (size == 3 || size == 5 || size == 7) &&
         (g.stride == Pair{1, 1} || g.stride == Pair{2, 2}) && g.dilation == Pair{1, 1} &&
         image.n * image.pixels() < std::int64_t{1} << 31;
}

// Calls f.template operator()<K, stride>() for the sizes that have a kernel of their own.
template <class F>
void dispatch_depthwise(const ConvDims& d, const F& f) {
  const auto with_stride = [&]<int K>() {
    if (d.stride[0] == 1)
      f.template operator()<K, 1>();
    else
      f.template operator()<K, 2>();
  };
  if (d.weight.h == 3)
    with_stride.template operator()<3>();
  else if (d.weight.h == 5)
    with_stride.template operator()<5>();
  else
    with_stride.template operator()<7>();
}

template <int K, int stride, class T>
void run_depthwise(const Context& gpu, const ConvDims& d, bool flipped, const Finish<T>& finish,
                   const T* x, const T* weight, T* y) {
  constexpr int wide = elements_per_access<T>;
  const DepthCut cut(d.x.c, wide);
  const std::int64_t places = d.y.n * d.y.h * ((d.y.w + depth_columns - 1) / depth_columns);
  launch(gpu, depthwise_kernel<K, stride, wide, T>, cut.grid(places), cut.block(), 0, d, flipped,
         finish, cut.chunks, x, weight, y);
}

// The convolution of dy with the flipped weight that gives the gradient of x, if the stride is 1.
ConvDims transposed(const ConvDims& d) {
  ConvDims t = d;
  std::swap(t.x, t.y);
  std::swap(t.xs, t.ys);
  t.padding[0] = static_cast<int>(d.weight.h) - 1 - d.padding[0];
  t.padding[1] = static_cast<int>(d.weight.w) - 1 - d.padding[1];
  return t;
}

template <class T>
KernelPtr forward(const Conv2d& op, GpuPrepare& prepare) {
  const ConvDims d(op, prepare.in[0].shape, prepare.in[1].shape, prepare.out[0].shape);
  const bool depthwise = is_depthwise(op, d.x, d.weight);
  return make_kernel([&gpu = prepare.gpu, op, d, depthwise](const Launch& call) {
    constexpr int wide = elements_per_access<T>;
    const Conv2d::Operands at = op.operands();
    const T *x = call.in<T>(at.x), *weight = call.in<T>(at.weight);
    T* y = call.out<T>();
    const Finish<T> finish{op.bias ? call.in<T>(at.bias) : nullptr,
                           op.residual ? call.in<T>(at.residual) : nullptr, op.epilogue};
    if (!depthwise || !rows_are_packable<wide>(d.x.c, x, y, finish.residual))
      return launch(gpu, conv_kernel<T>, dim3(blocks_for(d.y.n * d.ys.n, elementwise_threads)),
                    dim3(elementwise_threads), 0, d, finish, x, weight, y);
    dispatch_depthwise(d, [&]<int K, int stride>() {
      run_depthwise<K, stride>(gpu, d, false, finish, x, weight, y);
    });
  });
}

template <class T>
KernelPtr input_grad(const Conv2dInputGrad& op, GpuPrepare& prepare) {
  const ConvDims d(op, op.image, prepare.in[1].shape, prepare.in[0].shape);
  const bool depthwise = is_depthwise(op, d.x, d.weight);
  return make_kernel([&gpu = prepare.gpu, d, depthwise](const Launch& call) {
    constexpr int wide = elements_per_access<T>;
    const T *dy = call.in<T>(0), *weight = call.in<T>(1);
    T* dx = call.out<T>();
    if (!depthwise || !rows_are_packable<wide>(d.x.c, dy, dx))
      return launch(gpu, conv_input_grad_kernel<T>,
                    dim3(blocks_for(d.x.n * d.xs.n, elementwise_threads)),
                    dim3(elementwise_threads), 0, d, dy, weight, dx);
    if (d.stride[0] == 1)
      return dispatch_depthwise(d, [&]<int K, int stride>() {
        if constexpr (stride == 1)
          run_depthwise<K, 1>(gpu, transposed(d), true, Finish<T>{}, dy, weight, dx);
      });
    const DepthCut cut(d.x.c, wide);
    const auto taps = static_cast<std::size_t>(d.weight.h * d.weight.w);
    launch(gpu, depthwise_input_grad_kernel<wide, T>, cut.grid(d.x.n * d.x.pixels()), cut.block(),
           taps * cut.packs * wide * sizeof(float), d, cut.chunks, dy, weight, dx);
  });
}

template <class T>
KernelPtr weight_grad(const Conv2dWeightGrad& op, GpuPrepare& prepare) {
  constexpr int wide = elements_per_access<T>;
  const ConvDims d(op, prepare.in[1].shape, op.weight, prepare.in[0].shape);
  const bool depthwise = is_depthwise(op, d.x, d.weight);
  const std::int64_t taps = d.weight.h * d.weight.w, lines = d.y.n * d.y.h;
  std::int64_t per_part = lines;
  if (depthwise) {
    const std::int64_t blocks = DepthCut(d.x.c, wide).chunks * d.weight.h;
    const std::int64_t wanted =
        (std::int64_t{8} * prepare.gpu.card.multiprocessors + blocks - 1) / blocks;
    per_part = std::max((lines + wanted - 1) / wanted, (64 * depth_columns + d.y.w - 1) / d.y.w);
  }
  const int parts = static_cast<int>((lines + per_part - 1) / per_part);
  if (depthwise) prepare.workspace = static_cast<std::size_t>(parts * taps * d.x.c) * sizeof(float);
  return make_kernel([&gpu = prepare.gpu, d, depthwise, taps, lines, per_part,
                      parts](const Launch& call) {
    const T *dy = call.in<T>(0), *x = call.in<T>(1);
    T* dweight = call.out<T>();
    if (!depthwise || !rows_are_packable<wide>(d.x.c, dy, x)) {
      const std::int64_t warps = (lines * d.y.w + warp_width - 1) / warp_width;
      const std::int64_t threads = std::min<std::int64_t>(warps * warp_width, max_weight_threads);
      return launch(gpu, conv_weight_grad_kernel<T>,
                    dim3(static_cast<unsigned>(d.weight.n * d.ws.n)),
                    dim3(static_cast<unsigned>(threads)), 0, d, dy, x, dweight);
    }
    auto* partial = static_cast<float*>(call.workspace);
    const DepthCut cut(d.x.c, wide);
    dispatch_depthwise(d, [&]<int K, int stride>() {
      launch(gpu, depthwise_weight_grad_kernel<K, stride, wide, T>,
             dim3(cut.chunks, K, static_cast<unsigned>(parts)), cut.block(), 0, d,
             static_cast<unsigned>(per_part), dy, x, partial);
    });
    launch(gpu, depthwise_weight_sums_kernel<T>,
           dim3(blocks_for(d.x.c * taps, elementwise_threads)), dim3(elementwise_threads), 0, d.x.c,
           taps, parts, partial, dweight);
  });
}

}  // namespace

bool is_depthwise(const ConvProblem& problem) {
  return is_depthwise(problem.geometry, problem.x, problem.weight);
}

void finish_conv(const Context& gpu, const ConvProblem& problem, const ConvPointers& operands) {
  const ImageShape& s = problem.y;
  const ImageStrides strides(s, problem.geometry.layout);
  const std::int64_t n = s.n * strides.n;
  dispatch_floating(problem.dtype, [&]<class T>() {
    const Finish<T> finish{static_cast<const T*>(operands.bias),
                           static_cast<const T*>(operands.residual), problem.epilogue};
    launch(gpu, finish_kernel<T>, dim3(blocks_for(n, elementwise_threads)),
           dim3(elementwise_threads), 0, finish, n, strides.c, s.c,
           static_cast<T*>(const_cast<void*>(operands.y)));
  });
}

KernelPtr direct_conv(const Conv2d& op, GpuPrepare& prepare) {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return forward<T>(op, prepare); });
}

KernelPtr direct_conv_input_grad(const Conv2dInputGrad& op, GpuPrepare& prepare) {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return input_grad<T>(op, prepare); });
}

KernelPtr direct_conv_weight_grad(const Conv2dWeightGrad& op, GpuPrepare& prepare) {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return weight_grad<T>(op, prepare); });
}

}  // namespace ridge::gpu
