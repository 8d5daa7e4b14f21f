// Averaging and interpolating: linear maps of rows and of columns (ops/axis.h), and their
// transposes.

#include <algorithm>

#include "ridge/gpu/kernels/pixels.h"
#include "ridge/ops/pool.h"
#include "ridge/ops/resize.h"

namespace ridge {
namespace {

using namespace gpu;

// Dividing by 64 bits takes several times as long as by 32.
template <class Int>
struct Axes {
  BasicAxis<Int> down, across;
};

template <bool transposed, class Int>
__device__ auto range_of(const BasicAxis<Int>& axis, std::int64_t i) {
  return transposed ? axis.results_of(static_cast<Int>(i)) : axis.operands_of(static_cast<Int>(i));
}
template <bool transposed, class Int>
__device__ float weight_of(const BasicAxis<Int>& axis, std::int64_t i, Int k) {
  return transposed ? axis.weight(k, static_cast<Int>(i)) : axis.weight(static_cast<Int>(i), k);
}

// A thread for each element of the result, or N of them.
template <bool transposed, int N, class Index, class Int, class T>
__global__ void __launch_bounds__(elementwise_threads)
    separable_kernel(const __grid_constant__ Axes<Int> axes, Pixels in, Pixels out, Index threads,
                     const T* x, T* y) {
  gpu::begin_kernel();
  const Index i = thread_index<Index>();
  if (i >= threads) return;
  const Place<N> place(out, i);
  const auto rows = range_of<transposed>(axes.down, place.row);
  const auto columns = range_of<transposed>(axes.across, place.column);
  float sum[N] = {};
  for (Int row = rows.begin; row < rows.end; ++row) {
    const float outer = weight_of<transposed>(axes.down, place.row, row);
#pragma unroll 2
    for (Int column = columns.begin; column < columns.end; ++column) {
      const float weight = outer * weight_of<transposed>(axes.across, place.column, column);
      float values[N];
      load_pack<N>(x + in.at(place.outer, row, column) + place.channel, values);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += weight * values[k];
    }
  }
  store_pack<N>(y + out.at(place.outer, place.row, place.column) + place.channel, sum);
}

constexpr int mean_threads = 256, mean_warps = mean_threads / warp_width;
constexpr int most_mean_packs = 8;

// Large windows of equal weights: a block takes one of them for some packs of channels
// (threadIdx.x), and its lanes (threadIdx.y) share the elements, whose sums are then added, always
// in the same order. Of few windows several blocks take one, each a split: then the sums go to
// partial[split][result].
template <int N, class Int, class T>
__global__ void __launch_bounds__(mean_threads)
    mean_kernel(const __grid_constant__ Axes<Int> axes, Pixels in, Pixels out, int chunks,
                const T* x, T* y, float* partial) {
  gpu::begin_kernel();
  __shared__ float sums[mean_warps][most_mean_packs * N];
  const auto pixel = static_cast<int>(blockIdx.x) / chunks;
  const std::int64_t channel =
      (static_cast<std::int64_t>(static_cast<int>(blockIdx.x) - pixel * chunks) * blockDim.x +
       threadIdx.x) *
      N;
  const auto w = static_cast<int>(out.w), h = static_cast<int>(out.h);
  const int line = pixel / w, outer = line / h;
  const Int j = pixel - line * w, i = line - outer * h;
  const auto rows = axes.down.operands_of(i), columns = axes.across.operands_of(j);
  const auto width = static_cast<int>(columns.end - columns.begin);
  const int count = static_cast<int>(rows.end - rows.begin) * width;
  const int lanes = static_cast<int>(blockDim.y), lane = static_cast<int>(threadIdx.y);
  const bool whole_rows = width == in.w;  // which follow one another
  float sum[N] = {};
  if (channel < in.channels) {
    const T* const from = x + in.at(outer, rows.begin, columns.begin) + channel;
#pragma unroll 4
    for (int k = static_cast<int>(blockIdx.y) * lanes + lane; k < count;
         k += lanes * static_cast<int>(gridDim.y)) {
      const int row = whole_rows ? 0 : k / width;
      float values[N];
      load_pack<N>(from + (row * in.w + k - row * width) * in.channels, values);
#pragma unroll
      for (int v = 0; v < N; ++v) sum[v] += values[v];
    }
  }
  // First of the lanes of a warp, then of the warps.
  const int packs = static_cast<int>(blockDim.x);
  for (int mask = packs; mask < warp_width; mask *= 2)
#pragma unroll
    for (int v = 0; v < N; ++v) sum[v] += shuffle_xor(sum[v], mask);
  const int thread = lane * packs + static_cast<int>(threadIdx.x), warp = thread / warp_width;
  if (thread % warp_width < packs)
#pragma unroll
    for (int v = 0; v < N; ++v) sums[warp][thread % warp_width * N + v] = sum[v];
  __syncthreads();
  const std::int64_t to_channel =
      static_cast<std::int64_t>(static_cast<int>(blockIdx.x) - pixel * chunks) * packs * N + thread;
  if (thread >= packs * N || to_channel >= in.channels) return;
  float total = 0;
#pragma unroll
  for (int k = 0; k < mean_warps; ++k) total += sums[k][thread];
  const std::int64_t to = static_cast<std::int64_t>(pixel) * out.channels + to_channel;
  if (partial) {
    partial[blockIdx.y * out.numel() + to] = total;
    return;
  }
  store(&y[to], total * axes.down.weight(i, rows.begin) * axes.across.weight(j, columns.begin));
}

// The results from those of the splits.
template <class Int, class T>
__global__ void __launch_bounds__(mean_threads)
    mean_of_splits_kernel(const __grid_constant__ Axes<Int> axes, Pixels out, int splits,
                          const float* partial, T* y) {
  gpu::begin_kernel();
  const std::int64_t r = thread_index<std::int64_t>(), pixel = r / out.channels;
  if (r >= out.numel()) return;
  float sum = 0;
#pragma unroll 4
  for (int s = 0; s < splits; ++s) sum += partial[s * out.numel() + r];
  const Int j = static_cast<Int>(pixel % out.w), i = static_cast<Int>(pixel / out.w % out.h);
  store(&y[r], sum * axes.down.weight(i, axes.down.operands_of(i).begin) *
                   axes.across.weight(j, axes.across.operands_of(j).begin));
}

// The same with channels first, a warp for each window.
template <class Int, class T>
__global__ void __launch_bounds__(mean_threads)
    mean_of_planes_kernel(const __grid_constant__ Axes<Int> axes, Pixels in, Pixels out, const T* x,
                          T* y) {
  gpu::begin_kernel();
  const std::int64_t pixel = thread_index<std::int64_t>() / warp_width;
  const int lane = static_cast<int>(threadIdx.x) % warp_width;
  if (pixel >= out.numel()) return;
  const std::int64_t line = pixel / out.w, outer = line / out.h;
  const auto j = static_cast<Int>(pixel - line * out.w), i = static_cast<Int>(line - outer * out.h);
  const auto rows = axes.down.operands_of(i), columns = axes.across.operands_of(j);
  const auto width = static_cast<int>(columns.end - columns.begin);
  const int count = static_cast<int>(rows.end - rows.begin) * width;
  float sum = 0;
#pragma unroll 4
  for (int k = lane; k < count; k += warp_width) {
    const int row = k / width;
    sum += load(&x[in.at(outer, rows.begin + row, columns.begin + k - row * width)]);
  }
  sum = reduce_warp<Sum>(sum);
  if (lane == 0)
    store(&y[pixel], sum * axes.down.weight(i, rows.begin) * axes.across.weight(j, columns.begin));
}

// How blocks of mean_kernel are cut, with packs of N channels.
struct MeanCut {
  unsigned packs, chunks, splits;

  MeanCut(const Context& gpu, const Pixels& in, const Pixels& out, std::int64_t terms, int n) {
    const std::int64_t all = (in.channels + n - 1) / n;
    packs = most_mean_packs;
    while (packs > 1 && packs / 2 >= all) packs /= 2;
    chunks = blocks_for(all, packs);
    const std::int64_t blocks = out.numel() / out.channels * chunks;
    const std::int64_t wanted = (std::int64_t{16} * gpu.card.multiprocessors + blocks - 1) / blocks;
    const std::int64_t least = std::int64_t{4} * (mean_threads / packs);  // elements of a split
    splits = static_cast<unsigned>(
        std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, terms / least)));
  }
};

template <class T, class Int>
KernelPtr means(GpuPrepare& prepare, const Axes<Int>& axes, const Pixels& in, const Pixels& out,
                std::int64_t terms) {
  constexpr int wide = elements_per_access<T>;
  const MeanCut packed(prepare.gpu, in, out, terms, wide), single(prepare.gpu, in, out, terms, 1);
  const unsigned splits = std::max(packed.splits, single.splits);
  if (splits > 1 && out.channels > 1)
    prepare.workspace = splits * static_cast<std::size_t>(out.numel()) * sizeof(float);
  return make_kernel([&gpu = prepare.gpu, axes, in, out, packed, single](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    if (out.channels == 1)
      return launch(gpu, mean_of_planes_kernel<Int, T>,
                    dim3(blocks_for(out.numel(), mean_threads / warp_width)), dim3(mean_threads), 0,
                    axes, in, out, x, y);
    const bool in_packs = rows_are_packable<wide>(in.channels, x, y);
    const MeanCut& cut = in_packs ? packed : single;
    auto* partial = cut.splits > 1 ? static_cast<float*>(call.workspace) : nullptr;
    dispatch_packed<wide>(in_packs, [&]<int N>() {
      const auto pixels = static_cast<unsigned>(out.numel() / out.channels);
      launch(gpu, mean_kernel<N, Int, T>, dim3(pixels * cut.chunks, cut.splits),
             dim3(cut.packs, mean_threads / cut.packs), 0, axes, in, out,
             static_cast<int>(cut.chunks), x, y, partial);
    });
    if (partial)
      launch(gpu, mean_of_splits_kernel<Int, T>, dim3(blocks_for(out.numel(), mean_threads)),
             dim3(mean_threads), 0, axes, out, static_cast<int>(cut.splits), partial, y);
  });
}

template <bool transposed, class Int, class T>
KernelPtr separable(GpuPrepare& prepare, const Axes<Int>& axes, const Pixels& in,
                    const Pixels& out) {
  return make_kernel([&gpu = prepare.gpu, axes, in, out](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    dispatch_pixels<elements_per_access<T>>(
        out,
        [&]<int N, class Index>(Index threads, dim3 grid) {
          launch(gpu, separable_kernel<transposed, N, Index, Int, T>, grid,
                 dim3(elementwise_threads), 0, axes, in, out, threads, x, y);
        },
        x, y);
  });
}

template <bool transposed>
KernelPtr map(GpuPrepare& prepare, const std::array<Axis, 2>& both, ImageLayout layout) {
  const Axis &down = both[0], &across = both[1];
  const Pixels in({prepare.in[0].shape, layout}, layout);
  const Pixels out({prepare.out[0].shape, layout}, layout);
  // Elements of a window, on average: from so many on, threads share one.
  const std::int64_t terms = down.terms() * across.terms() / (down.out * across.out);
  const bool averages = !transposed && down.kind != Axis::Kind::linear && terms >= 32;
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class T>() -> KernelPtr {
    const auto with = [&]<class Int>(const Axes<Int>& axes) {
      return averages ? means<T>(prepare, axes, in, out, terms)
                      : separable<transposed, Int, T>(prepare, axes, in, out);
    };
    if (down.fits_32_bits() && across.fits_32_bits())
      return with(Axes<int>{down.as<int>(), across.as<int>()});
    return with(Axes<std::int64_t>{down, across});
  });
}

}  // namespace

KernelPtr AvgPool2d::gpu(GpuPrepare& p) const { return map<false>(p, axes(p.in, p.out), layout); }
KernelPtr AvgPool2dGrad::gpu(GpuPrepare& p) const {
  return map<true>(p, axes(p.in, p.out), layout);
}
KernelPtr AdaptiveAvgPool2d::gpu(GpuPrepare& p) const {
  return map<false>(p, axes(p.in, p.out), layout);
}
KernelPtr AdaptiveAvgPool2dGrad::gpu(GpuPrepare& p) const {
  return map<true>(p, axes(p.in, p.out), layout);
}
KernelPtr Resize::gpu(GpuPrepare& p) const { return map<false>(p, axes(p.in, p.out), layout); }
KernelPtr ResizeGrad::gpu(GpuPrepare& p) const { return map<true>(p, axes(p.in, p.out), layout); }

}  // namespace ridge
