#pragma once

// Two sums over each column of a matrix, or over each channel of images with channels first: what
// the statistics and the gradients of norms are made of. Each is taken in parts that depend on the
// shape and the card alone, by blocks; of those that share a column, the one that is done last adds
// their sums in order and makes of them what is wanted.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "ridge/gpu/device/memory.h"
#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge::gpu {

inline constexpr int sum_packs = 8, sum_lanes = 32;  // of a block: packs of columns, and rows

// With channels last, a matrix of `rows` of `columns` channels. With channels first, `images` times
// `columns` planes of `plane` elements.
struct ChannelSums {
  bool planes = false;
  std::int64_t columns = 1;
  std::int64_t rows = 1;                 // elements of a channel
  std::int64_t plane = 1;                // with channels first
  std::int64_t per_part = 1, parts = 1;  // rows, or images

  static ChannelSums of_rows(const Context& gpu, std::int64_t rows, std::int64_t columns,
                             std::int64_t pack) {
    const std::int64_t blocks = (columns + sum_packs * pack - 1) / (sum_packs * pack);
    // As many blocks as are at work at once: fewer parts are to be added in the end.
    const std::int64_t wanted = (std::int64_t{2} * gpu.card.multiprocessors + blocks - 1) / blocks;
    ChannelSums sums{.columns = columns, .rows = rows};
    sums.per_part = std::max<std::int64_t>({2 * sum_lanes, (rows + wanted - 1) / wanted});
    sums.parts = (rows + sums.per_part - 1) / sums.per_part;
    return sums;
  }

  static ChannelSums of_planes(std::int64_t images, std::int64_t channels, std::int64_t plane) {
    ChannelSums sums{.planes = true, .columns = channels, .rows = images * plane, .plane = plane};
    sums.per_part = std::clamp<std::int64_t>(8192 / plane, 1, images);
    sums.parts = (images + sums.per_part - 1) / sums.per_part;
    return sums;
  }

  // The size of the sums of all parts, sums[part][0 or 1][channel].
  std::size_t floats() const { return static_cast<std::size_t>(2 * parts * columns); }

  // How many elements of a channel part p has, and which is the first of channel c.
  __device__ std::int64_t part_size(std::int64_t p) const {
    const std::int64_t all = planes ? rows / plane : rows;
    return min(per_part, all - p * per_part) * (planes ? plane : 1);
  }
  __device__ std::int64_t first(std::int64_t p, std::int64_t c) const {
    return planes ? (p * per_part * columns + c) * plane : p * per_part * columns + c;
  }
};

// Terms gives what an element of channel c in some row adds to each of the two sums, in three
// steps, so that several rows are read before the first is used:
//   auto at<N>(c)                               what it needs of N channels
//   auto load<N>(i)                             what it reads of N elements
//   void add<N>(channels, loaded, i, row, a, b) adds the terms of N channels; may write as well
// Finish is called with a channel and its two sums.

// Whether the calling block is the last of so many that share a counter. The threads of the block
// see what the others wrote before they asked.
__device__ inline bool is_last_of(unsigned* arrived, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = atomicInc(arrived, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Rows of a thread that are under way at once.
template <class Loaded>
inline constexpr int rows_at_once = sizeof(Loaded) <= 32 ? 4 : 2;

inline constexpr int sum_threads = sum_packs * sum_lanes;

// Adds what the parts of a block's columns have, in the order of the parts, V columns a thread.
template <int V, class Finish>
__device__ void finish_columns(const ChannelSums& s, const Finish& finish, const float* sums,
                               std::int64_t first, int columns, double* shared) {
  const int across = columns / V, lanes = sum_threads / across;
  const int thread = static_cast<int>(threadIdx.y * sum_packs + threadIdx.x);
  const int at = thread % across * V, lane = thread / across;
  double total[2][V] = {};
  // Several parts are under way at once: the rest of the card waits for this.
  constexpr int at_once = 8;
  if (first + at < s.columns)
    for (std::int64_t top = lane; top < s.parts; top += at_once * lanes) {
      Pack<float, V> loaded[2][at_once];
#pragma unroll
      for (int i = 0; i < 2 * at_once; ++i) {
        const std::int64_t p = min(top + i / 2 * lanes, s.parts - 1);
        loaded[i % 2][i / 2] = *reinterpret_cast<const Pack<float, V>*>(
            sums + (2 * p + i % 2) * s.columns + first + at);
      }
#pragma unroll
      for (int i = 0; i < 2 * at_once; ++i)
        if (top + i / 2 * lanes < s.parts)
#pragma unroll
          for (int k = 0; k < V; ++k) total[i % 2][k] += loaded[i % 2][i / 2].at[k];
    }
#pragma unroll
  for (int k = 0; k < V; ++k) {
    shared[(2 * lane) * columns + at + k] = total[0][k];
    shared[(2 * lane + 1) * columns + at + k] = total[1][k];
  }
  __syncthreads();
  if (thread >= columns || first + thread >= s.columns) return;
  double a = 0, b = 0;
  for (int l = 0; l < lanes; ++l) {
    a += shared[2 * l * columns + thread];
    b += shared[(2 * l + 1) * columns + thread];
  }
  finish(first + thread, a, b);
}

// The parts from the last to the first: the end of what was just written is still in the cache, and
// whoever reads it again from its beginning finds that there.
template <int N, class Terms, class Finish>
__global__ void __launch_bounds__(sum_threads, 2)
    sum_rows_kernel(ChannelSums s, Terms terms, Finish finish, float* sums, unsigned* arrived) {
  begin_kernel();
  constexpr int columns = sum_packs * N, vector = N < 4 ? N : 4;
  // Two sums of each column in f32 of each lane and, in the end, in f64 of each lane there.
  constexpr int of_part = sum_lanes * (columns + 1), of_all = 2 * sum_threads * vector;
  __shared__ double shared[of_part > of_all ? of_part : of_all];
  auto* const parts = reinterpret_cast<float*>(shared);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * columns;
  const std::int64_t p = s.parts - 1 - static_cast<std::int64_t>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.y), column = static_cast<int>(threadIdx.x) * N;
  float a[N] = {}, b[N] = {};
  if (const std::int64_t c = first + column; c < s.columns) {
    const auto channels = terms.template at<N>(c);
    using Loaded = decltype(terms.template load<N>(c));
    constexpr int at_once = rows_at_once<Loaded>;
    const std::int64_t begin = p * s.per_part, end = begin + s.part_size(p);
    for (std::int64_t top = begin + lane; top < end; top += at_once * sum_lanes) {
      Loaded loaded[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (top + k * sum_lanes < end)
          loaded[k] = terms.template load<N>((top + k * sum_lanes) * s.columns + c);
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (const std::int64_t row = top + k * sum_lanes; row < end)
          terms.template add<N>(channels, loaded[k], row * s.columns + c, row, a, b);
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    parts[lane * (columns + 1) + column + k] = a[k];
    parts[(sum_lanes + lane) * (columns + 1) + column + k] = b[k];
  }
  __syncthreads();
  for (int k = lane * sum_packs + static_cast<int>(threadIdx.x); k < 2 * columns;
       k += sum_threads) {
    const int which = k / columns, at = k % columns;
    if (first + at >= s.columns) continue;
    const float* const of_lanes = parts + which * sum_lanes * (columns + 1) + at;
    float sum = of_lanes[0];
    for (int l = 1; l < sum_lanes; ++l) sum += of_lanes[l * (columns + 1)];
    sums[(2 * p + which) * s.columns + first + at] = sum;
  }
  if (!is_last_of(arrived + blockIdx.x, gridDim.y)) return;
  finish_columns<vector>(s, finish, sums, first, columns, shared);
}

// A block for a part of a channel.
template <class Terms, class Finish>
__global__ void __launch_bounds__(sum_threads)
    sum_planes_kernel(ChannelSums s, Terms terms, Finish finish, float* sums, unsigned* arrived) {
  begin_kernel();
  const std::int64_t c = blockIdx.x, p = s.parts - 1 - static_cast<std::int64_t>(blockIdx.y);
  const std::int64_t first = s.first(p, c);
  const auto plane = static_cast<std::uint32_t>(s.plane);
  const auto count = static_cast<std::uint32_t>(s.part_size(p));
  const auto channels = terms.template at<1>(c);
  float a[1] = {}, b[1] = {};
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const std::uint32_t image = i / plane;
    const std::int64_t at =
        first + static_cast<std::int64_t>(image) * s.columns * s.plane + (i - image * plane);
    terms.template add<1>(channels, terms.template load<1>(at), at, 0, a, b);
  }
  const float sum_a = reduce_block<Sum>(a[0]);
  const float sum_b = reduce_block<Sum>(b[0]);
  if (threadIdx.x == 0) {
    sums[2 * p * s.columns + c] = sum_a;
    sums[(2 * p + 1) * s.columns + c] = sum_b;
  }
  if (!is_last_of(arrived + c, gridDim.y)) return;
  double total_a = 0, total_b = 0;
  for (std::int64_t part = threadIdx.x; part < s.parts; part += blockDim.x) {
    total_a += sums[2 * part * s.columns + c];
    total_b += sums[(2 * part + 1) * s.columns + c];
  }
  total_a = reduce_block<Sum>(total_a);
  total_b = reduce_block<Sum>(total_b);
  if (threadIdx.x == 0) finish(c, total_a, total_b);
}

// The sums are the workspace. Returns counters of finished blocks, one for each set that shares a
// column; zero between launches.
inline std::shared_ptr<DeviceMemory> reserve_sums(GpuPrepare& prepare, const ChannelSums& s) {
  prepare.workspace = s.floats() * sizeof(float);
  const std::size_t bytes = static_cast<std::size_t>(s.columns) * sizeof(unsigned);
  auto arrived = std::make_shared<DeviceMemory>(bytes);
  arrived->clear(prepare.gpu.stream, bytes);
  return arrived;
}

// Fills `sums`, and calls finish for each channel. `packed` says that columns can be read in packs
// of N.
template <int N, class Terms, class Finish>
void sum_channels(const Context& gpu, const ChannelSums& s, bool packed, const Terms& terms,
                  const Finish& finish, float* sums, const DeviceMemory& arrived) {
  const auto parts = static_cast<unsigned>(s.parts);
  auto* const counters = arrived.data<unsigned>();
  if (s.planes) {
    launch(gpu, sum_planes_kernel<Terms, Finish>, dim3(static_cast<unsigned>(s.columns), parts),
           dim3(sum_threads), 0, s, terms, finish, sums, counters);
    return;
  }
  dispatch_packed<N>(packed, [&]<int width>() {
    launch(gpu, sum_rows_kernel<width, Terms, Finish>,
           dim3(blocks_for(s.columns, sum_packs * width), parts), dim3(sum_packs, sum_lanes), 0, s,
           terms, finish, sums, counters);
  });
}

// The sums as the gradients of a norm's parameters: the first is of dy, the second of dy xhat.
struct ParameterGrads {
  float *dweight, *dbias;
  __device__ void operator()(std::int64_t c, double a, double b) const {
    dbias[c] = static_cast<float>(a);
    dweight[c] = static_cast<float>(b);
  }
};

}  // namespace ridge::gpu
