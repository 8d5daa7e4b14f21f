#include "ridge/gpu/device/probe.h"

#include <algorithm>

#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu {
namespace {

// Moving: a block takes one tile after another, and each of its threads four packs of a tile, 16
// bytes each, all in flight at once.
constexpr int block = 256;
constexpr int packs = 4;
constexpr std::size_t tile_bytes = std::size_t{block} * packs * sizeof(uint4);
constexpr unsigned blocks_per_multiprocessor = 8;
// What a launch moves at least: some tenths of a millisecond.
constexpr std::size_t bytes_per_launch = std::size_t{1} << 30;

// Multiplying and adding: a latency of 4 cycles at one instruction a cycle and scheduler needs 4
// chains for each scheduler, and a block's warps bring more.
constexpr int chains = 16;
constexpr int rounds = 4096;
constexpr unsigned multiply_blocks = 4;  // of a multiprocessor

// Tiles of a buffer are taken round and round, so that no block meets one again before its
// multiprocessor's own cache has forgotten it.
struct Tiles {
  const uint4* from;
  uint4* to;
  unsigned count;  // in a buffer
  unsigned turns;  // all that are taken
};

template <bool reads, bool writes>
__global__ void __launch_bounds__(block) move_kernel(Tiles tiles, std::uint32_t fill) {
  begin_kernel();
  std::uint32_t seen = 0;
  for (unsigned turn = blockIdx.x; turn < tiles.turns; turn += gridDim.x) {
    const std::size_t first =
        static_cast<std::size_t>(turn % tiles.count) * block * packs + threadIdx.x;
    uint4 pack[packs];
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      pack[i] = uint4{fill, fill, fill, fill};
      if (reads) pack[i] = tiles.from[first + i * block];
    }
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      if (writes)
        tiles.to[first + i * block] = pack[i];
      else
        seen ^= pack[i].x ^ pack[i].y ^ pack[i].z ^ pack[i].w;
    }
  }
  // `fill` is never 0, but the compiler does not know: else it would leave out the reading.
  if (!writes && fill == 0) const_cast<uint4*>(tiles.from)->x = seen;
}

// Sums stay near 1. `never` is a sum that none of them reaches.
__global__ void multiply_add_kernel(float factor, float addend, float never, float* nowhere) {
  begin_kernel();
  float sum[chains];
#pragma unroll
  for (int c = 0; c < chains; ++c)
    sum[c] = 1.0f + addend * static_cast<float>(threadIdx.x + 32 * c);
#pragma unroll 4
  for (int r = 0; r < rounds; ++r)
#pragma unroll
    for (int c = 0; c < chains; ++c) sum[c] = fmaf(sum[c], factor, addend);
  float all = 0;
#pragma unroll
  for (int c = 0; c < chains; ++c) all += sum[c];
  if (all == never) *nowhere = all;
}

__global__ void nothing_kernel() { begin_kernel(); }

template <bool reads, bool writes>
ProbeKernel moving(const Context& gpu, std::size_t bytes) {
  const std::size_t count = std::max<std::size_t>(1, bytes / tile_bytes);
  const std::size_t times = std::max<std::size_t>(1, bytes_per_launch / (count * tile_bytes));
  const auto turns = static_cast<unsigned>(count * times);
  const unsigned grid =
      std::min(turns, blocks_per_multiprocessor * static_cast<unsigned>(gpu.card.multiprocessors));
  const double moved = static_cast<double>(turns) * static_cast<double>(tile_bytes);
  return {make_kernel([&gpu, count, turns, grid](const Launch& call) {
            constexpr std::uint32_t fill = 0x3f9d3c71;
            launch(gpu, move_kernel<reads, writes>, grid, block, 0,
                   Tiles{reads ? call.in<uint4>(0) : nullptr, writes ? call.out<uint4>() : nullptr,
                         static_cast<unsigned>(count), turns},
                   fill);
          }),
          (reads && writes ? 2 : 1) * moved};
}

ProbeKernel multiplying(const Context& gpu) {
  const unsigned grid = multiply_blocks * static_cast<unsigned>(gpu.card.multiprocessors);
  return {make_kernel([&gpu, grid](const Launch&) {
            launch(gpu, multiply_add_kernel, grid, block, 0, 0.999f, 1e-3f, -1.0f,
                   static_cast<float*>(nullptr));
          }),
          2.0 * chains * rounds * grid * block};
}

}  // namespace

ProbeKernel make_probe(const Context& gpu, Probe what, std::size_t bytes) {
  switch (what) {
    case Probe::nothing:
      return {make_kernel([&gpu](const Launch&) { launch(gpu, nothing_kernel, 1, 32, 0); }), 1};
    case Probe::multiply_add:
      return multiplying(gpu);
    case Probe::read:
      return moving<true, false>(gpu, bytes);
    case Probe::write:
      return moving<false, true>(gpu, bytes);
    case Probe::copy:
      return moving<true, true>(gpu, bytes);
  }
  return {};
}

}  // namespace ridge::gpu
