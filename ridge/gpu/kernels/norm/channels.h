#pragma once

// What is done to each element of images, channel by channel: how batch norm is applied.

#include <algorithm>
#include <cstdint>

#include "ridge/gpu/kernels/nest.h"
#include "ridge/gpu/kernels/norm/channel_sums.h"
#include "ridge/ops/image.h"

namespace ridge::gpu {

// Elements and their channels, for what is done to each element.
struct ChannelLayout {
  bool planes;
  std::int64_t columns, rows, plane;  // as ChannelSums has them
};

inline constexpr int apply_rows = 4;  // of a thread with channels last that are under way at once

// apply(load(row), row) for every row of the calling thread. What is loaded does not wait for what
// is written before it.
template <class Load, class Apply>
__device__ void each_row(const ChannelLayout& s, std::int64_t step, const Load& load,
                         const Apply& apply) {
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * sum_lanes + threadIdx.y;
       first < s.rows; first += apply_rows * step) {
    decltype(load(first)) loaded[apply_rows];
#pragma unroll
    for (int k = 0; k < apply_rows; ++k)
      if (first + k * step < s.rows) loaded[k] = load(first + k * step);
#pragma unroll
    for (int k = 0; k < apply_rows; ++k)
      if (first + k * step < s.rows) apply(loaded[k], first + k * step);
  }
}

// Map::at<N>(c) gives what it needs of N channels, load<N>(i) what it needs of the N elements at an
// offset, and apply() writes what it makes of both.
template <int N, class Map>
__global__ void __launch_bounds__(sum_packs* sum_lanes)
    apply_rows_kernel(ChannelLayout s, Map map) {
  begin_kernel();
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * sum_packs + threadIdx.x) * N;
  if (c >= s.columns) return;
  const auto channels = map.template at<N>(c);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * sum_lanes;
  each_row(
      s, step, [&](std::int64_t row) { return map.template load<N>(row * s.columns + c); },
      [&](const auto& loaded, std::int64_t row) {
        map.template apply<N>(channels, loaded, row * s.columns + c);
      });
}

// Blocks of a multiprocessor that keep it busy: two waves of what little asks of the registers, one
// of what asks much.
inline constexpr int many_blocks = 16, few_blocks = 2;

// Blocks below one another: no more than keep the card busy, since each begins by working out what
// it needs of its channels.
inline unsigned blocks_down(const Context& gpu, std::int64_t rows, unsigned across,
                            std::int64_t per_multiprocessor = many_blocks) {
  const std::int64_t most = std::max<std::int64_t>(
      1, per_multiprocessor * gpu.card.multiprocessors / static_cast<std::int64_t>(across));
  const std::int64_t wanted = blocks_for(rows, sum_lanes * apply_rows);
  return static_cast<unsigned>(std::min<std::int64_t>({wanted, most, 65535}));
}

// With channels first a pack lies in one plane.
template <int N, class Map>
__global__ void __launch_bounds__(elementwise_threads)
    apply_planes_kernel(ChannelLayout s, std::int64_t packs, Map map) {
  begin_kernel();
  const std::int64_t i = thread_index<std::int64_t>();
  if (i >= packs) return;
  const std::int64_t c = i * N / s.plane % s.columns;
  map.template apply<N>(map.template at<1>(c), map.template load<N>(i * N), i * N);
}

template <int wide, class Map>
void apply_channels(const Context& gpu, const ChannelLayout& s, bool aligned, const Map& map,
                    int per_multiprocessor = many_blocks) {
  const std::int64_t run = s.planes ? s.plane : s.columns;
  dispatch_packed<wide>(aligned && run % wide == 0, [&]<int N>() {
    if (s.planes) {
      const std::int64_t packs = s.columns * s.rows / N;
      launch(gpu, apply_planes_kernel<N, Map>, dim3(blocks_for(packs, elementwise_threads)),
             dim3(elementwise_threads), 0, s, packs, map);
      return;
    }
    const unsigned across = blocks_for(s.columns, sum_packs * N);
    launch(gpu, apply_rows_kernel<N, Map>,
           dim3(across, blocks_down(gpu, s.rows, across, per_multiprocessor)),
           dim3(sum_packs, sum_lanes), 0, s, map);
  });
}

inline ChannelSums sums_of(const Context& gpu, const Shape& shape, ImageLayout layout, int pack) {
  const ImageShape image(shape, layout);
  return layout == ImageLayout::nchw
             ? ChannelSums::of_planes(image.n, image.c, image.pixels())
             : ChannelSums::of_rows(gpu, image.n * image.pixels(), image.c, pack);
}

inline ChannelLayout layout_of(const ChannelSums& s) {
  return {s.planes, s.columns, s.rows, s.plane};
}

}  // namespace ridge::gpu
