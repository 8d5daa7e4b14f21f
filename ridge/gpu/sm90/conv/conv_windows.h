#pragma once

// How the windows of an image come into a ring of stages, as the left operand of a product: for
// conv.cu and int8_conv.cu.

#include <cstdint>

#include "ridge/gpu/sm90/attention/flash_tile.h"

namespace ridge::gpu::sm90 {

// The steps of a tile that a block sums.
struct Steps {
  int first, end;
};

template <class C, class Arguments>
__device__ Steps own_steps(const Arguments& a) {
  if constexpr (!C::split) return {0, a.steps};
  const int parts = static_cast<int>(gridDim.x) / a.tiles, rank = ptx::cluster_rank();
  return {a.steps * rank / parts, a.steps * (rank + 1) / parts};
}

// Loads what a tile is multiplied of, step by step, each into a stage of its own: of the windows of
// the results from `pixel` on, C::depth channels of one of their elements; behind these, by
// load_weight(to, full, c, tap), as many of the weight, from channel c * C::depth of element `tap`.
template <class C, class Shared, class Arguments, class LoadWeight>
__device__ void load_windows_of_tile(Shared& shared, const Arguments& a, Ring<C::stages>& ring,
                                     int pixel, const LoadWeight& load_weight) {
  const Steps steps = own_steps<C>(a);
  const int line = pixel / a.out_w, image = line / a.out_h;
  const int column = (pixel - line * a.out_w) * a.stride[1] - a.padding[1];
  const int row = (line - image * a.out_h) * a.stride[0] - a.padding[0];
  int tap = steps.first / a.channel_steps, c = steps.first - tap * a.channel_steps;
  int r = tap / a.kernel[1], s = tap - r * a.kernel[1];
  for (int step = steps.first; step < steps.end; ++step, ring.advance()) {
    std::uint64_t* full = &shared.full[ring.stage];
    unsigned char* to = shared.stage[ring.stage];
    ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ptx::barrier_arrive_expect(full, C::load_bytes);
    if (a.flat)
      ptx::load_box(to, &a.x, full, c * C::depth, pixel);
    else
      ptx::load_windows(to, &a.x, full, c * C::depth, column, row, image,
                        static_cast<std::uint16_t>(s * a.dilation[1]),
                        static_cast<std::uint16_t>(r * a.dilation[0]));
    load_weight(to + C::A::bytes, full, c, tap);
    if (++c < a.channel_steps) continue;
    c = 0;
    ++tap;
    if (++s < a.kernel[1]) continue;
    s = 0;
    ++r;
  }
}

}  // namespace ridge::gpu::sm90
