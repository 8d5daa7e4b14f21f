#pragma once

// Two sums over each column of a matrix, or over each channel of images with channels first: what
// the statistics and the gradients of norms are made of. Each is taken in parts that depend on the
// shape and the card alone, by blocks; finish() adds these in order.

#include <algorithm>
#include <cstdint>

#include "ridge/gpu/elementwise.h"
#include "ridge/gpu/rows.h"

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
    const std::int64_t wanted = (std::int64_t{4} * gpu.multiprocessors + blocks - 1) / blocks;
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

  // Of the sums of all parts: sums[part][0 or 1][channel].
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

// Terms gives, for an element of channel c in some row, what each of the two sums adds:
//   float shift(element)                       the part's first element of the channel
//   void add<N>(element, row, c, shift, a, b)  adds the terms of N channels to a and b
template <int N, class Terms>
__global__ void __launch_bounds__(sum_packs* sum_lanes)
    sum_rows_kernel(ChannelSums s, Terms terms, float* sums) {
  begin_kernel();
  __shared__ float shared[2][sum_lanes][sum_packs * N + 1];
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * sum_packs + threadIdx.x) * N;
  const std::int64_t p = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.y), column = static_cast<int>(threadIdx.x) * N;
  float a[N] = {}, b[N] = {};
  if (c < s.columns) {
    float shift[N];
#pragma unroll
    for (int k = 0; k < N; ++k) shift[k] = terms.shift(s.first(p, c + k));
    const std::int64_t begin = p * s.per_part, end = begin + s.part_size(p);
#pragma unroll 4
    for (std::int64_t row = begin + lane; row < end; row += sum_lanes)
      terms.template add<N>(row * s.columns + c, row, c, shift, a, b);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    shared[0][lane][column + k] = a[k];
    shared[1][lane][column + k] = b[k];
  }
  __syncthreads();
  const int i = lane * sum_packs + static_cast<int>(threadIdx.x);
  for (int k = i; k < 2 * sum_packs * N; k += sum_packs * sum_lanes) {
    const int which = k / (sum_packs * N), at = k % (sum_packs * N);
    const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * sum_packs * N + at;
    if (channel >= s.columns) continue;
    float sum = shared[which][0][at];
    for (int l = 1; l < sum_lanes; ++l) sum += shared[which][l][at];
    sums[(2 * p + which) * s.columns + channel] = sum;
  }
}

// A block for a part of a channel.
template <class Terms>
__global__ void __launch_bounds__(sum_packs* sum_lanes)
    sum_planes_kernel(ChannelSums s, Terms terms, float* sums) {
  begin_kernel();
  const std::int64_t c = blockIdx.x, p = blockIdx.y, first = s.first(p, c);
  const auto plane = static_cast<std::uint32_t>(s.plane);
  const auto count = static_cast<std::uint32_t>(s.part_size(p));
  const float shift[1] = {terms.shift(first)};
  float a[1] = {}, b[1] = {};
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const std::uint32_t image = i / plane;
    const std::int64_t at =
        first + static_cast<std::int64_t>(image) * s.columns * s.plane + (i - image * plane);
    terms.template add<1>(at, 0, c, shift, a, b);
  }
  const float sum_a = reduce_block<Sum>(a[0]);
  const float sum_b = reduce_block<Sum>(b[0]);
  if (threadIdx.x > 0) return;
  sums[2 * p * s.columns + c] = sum_a;
  sums[(2 * p + 1) * s.columns + c] = sum_b;
}

constexpr int finish_columns = 32, finish_lanes = 8;

// finish(c, state) for each channel c, with what the parts' sums make of `State`: lanes merge every
// finish_lanes-th part by finish.add(), and then the lanes' states by state.merge(). States begin
// as zeros.
template <class State, class Finish>
__global__ void __launch_bounds__(finish_columns* finish_lanes)
    finish_kernel(ChannelSums s, Finish finish, const float* sums) {
  begin_kernel();
  __shared__ State states[finish_lanes][finish_columns];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * finish_columns + threadIdx.x;
  State state{};
  if (c < s.columns)
    for (std::int64_t p = threadIdx.y; p < s.parts; p += finish_lanes)
      finish.add(state, s, p, c, sums[2 * p * s.columns + c], sums[(2 * p + 1) * s.columns + c]);
  states[threadIdx.y][threadIdx.x] = state;
  __syncthreads();
  if (threadIdx.y > 0 || c >= s.columns) return;
  for (int lane = 1; lane < finish_lanes; ++lane) state.merge(states[lane][threadIdx.x]);
  finish(c, state);
}

// Fills `sums`, and calls finish for each channel. `packed` says that columns can be read in packs
// of N.
template <int N, class State, class Terms, class Finish>
void sum_channels(const Context& gpu, const ChannelSums& s, bool packed, const Terms& terms,
                  const Finish& finish, float* sums) {
  const auto parts = static_cast<unsigned>(s.parts);
  if (s.planes)
    launch(gpu, sum_planes_kernel<Terms>, dim3(static_cast<unsigned>(s.columns), parts),
           dim3(sum_packs * sum_lanes), 0, s, terms, sums);
  else
    dispatch_packed<N>(packed, [&]<int width>() {
      launch(gpu, sum_rows_kernel<width, Terms>,
             dim3(blocks_for(s.columns, sum_packs * width), parts), dim3(sum_packs, sum_lanes), 0,
             s, terms, sums);
    });
  launch(gpu, finish_kernel<State, Finish>, dim3(blocks_for(s.columns, finish_columns)),
         dim3(finish_columns, finish_lanes), 0, s, finish, sums);
}

// The state of two plain sums.
struct TwoSums {
  double a, b;
  __device__ void merge(const TwoSums& o) {
    a += o.a;
    b += o.b;
  }
};

// The sums as the gradients of a norm's parameters: the first is of dy, the second of dy xhat.
struct ParameterGrads {
  float *dweight, *dbias;
  __device__ void add(TwoSums& sums, const ChannelSums&, std::int64_t, std::int64_t, float a,
                      float b) const {
    sums.a += a;
    sums.b += b;
  }
  __device__ void operator()(std::int64_t c, const TwoSums& sums) const {
    dbias[c] = static_cast<float>(sums.a);
    dweight[c] = static_cast<float>(sums.b);
  }
};

}  // namespace ridge::gpu
