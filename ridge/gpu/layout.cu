#include "ridge/ops/layout.h"

#include <algorithm>
#include <numeric>

#include "ridge/gpu/elementwise.h"
#include "ridge/gpu/nest.h"

namespace ridge {
namespace {

using gpu::Nest;

constexpr int moves_per_thread = 4;

// Bits that travel together.
template <int bytes>
using Word = std::conditional_t<bytes == 2, gpu::Pack<std::uint16_t, 1>,
                                gpu::Pack<std::uint32_t, (bytes + 3) / 4>>;

// y[i] = x[where the nest's second offset is at iteration i].
template <class W, class Index>
__global__ void gather_kernel(Index n, const __grid_constant__ Nest<Index> nest, const W* x, W* y) {
  gpu::begin_kernel();
  const Index first =
      static_cast<Index>(blockIdx.x) * (moves_per_thread * gpu::elementwise_threads) + threadIdx.x;
  W words[moves_per_thread];
#pragma unroll
  for (int m = 0; m < moves_per_thread; ++m) {
    const Index i = first + m * gpu::elementwise_threads;
    if (i < n) words[m] = x[gpu::offsets_at(nest, i).at[1]];
  }
#pragma unroll
  for (int m = 0; m < moves_per_thread; ++m) {
    const Index i = first + m * gpu::elementwise_threads;
    if (i < n) y[i] = words[m];
  }
}

LoopNest loops_of(const Shape& in, const Shape& out, const Permute& op) {
  LoopNest nest = permuted_nest(in, out, op.order);
  if (nest.empty()) nest.push_back({1, {1, 1}});
  return nest;
}

// The same loops over runs of `width` elements of the innermost.
LoopNest in_runs(LoopNest nest, std::int64_t width) {
  nest.back().extent /= width;
  for (std::size_t l = 0; l + 1 < nest.size(); ++l)
    for (std::int64_t& stride : nest[l].strides) stride /= width;
  return nest;
}

template <int bytes>
void gather(const gpu::Context& gpu, const LoopNest& nest, const void* x, void* y) {
  const std::int64_t n = iterations(nest);
  gpu::dispatch_index(n, [&]<class Index>() {
    gpu::launch(gpu, gather_kernel<Word<bytes>, Index>,
                dim3(gpu::blocks_for(n, moves_per_thread * gpu::elementwise_threads)),
                dim3(gpu::elementwise_threads), 0, static_cast<Index>(n), Nest<Index>(nest),
                static_cast<const Word<bytes>*>(x), static_cast<Word<bytes>*>(y));
  });
}

// The innermost loop runs along both tensors: rows move as they are, in the widest accesses that
// divide them.
template <class T>  // an integer as wide as the elements
KernelPtr copy_rows(GpuPrepare& prepare, const LoopNest& nest) {
  std::int64_t unit = 16 / sizeof(T);
  for (std::size_t l = 0; l + 1 < nest.size(); ++l) unit = std::gcd(unit, nest[l].strides[1]);
  unit = std::gcd(unit, nest.back().extent);
  return make_kernel([&gpu = prepare.gpu, nest, unit](const Launch& call) {
    const void* x = call.inputs[0];
    void* y = call.outputs[0];
    std::int64_t width = unit;
    while (!gpu::is_aligned(x, width * sizeof(T)) || !gpu::is_aligned(y, width * sizeof(T)))
      width /= 2;
    const LoopNest runs = in_runs(nest, width);
    switch (width * sizeof(T)) {
      case 16:
        return gather<16>(gpu, runs, x, y);
      case 8:
        return gather<8>(gpu, runs, x, y);
      case 4:
        return gather<4>(gpu, runs, x, y);
      default:
        return gather<2>(gpu, runs, x, y);
    }
  });
}

constexpr int tile = 64, tile_threads = 256;

struct Transposition {
  std::int64_t rows, row_stride;        // of y; x runs along them
  std::int64_t columns, column_stride;  // of x; y runs along them
  std::int64_t others;                  // iterations of the other loops
};

// y[r * row_stride + c] = x[c * column_stride + r], one tile a block, for each iteration of the
// nest of the other loops. Both sides are accessed along their runs, V elements at a time, and turn
// in shared memory. T is an integer as wide as the elements.
template <int V, class T>
__global__ __launch_bounds__(tile_threads, sizeof(T) == 2 ? 6 : 4) void transpose_kernel(
    const __grid_constant__ Transposition all, const __grid_constant__ Nest<std::int64_t> others,
    const T* x, T* y) {
  gpu::begin_kernel();
  using Bits = gpu::Pack<T, V>;
  __shared__ Bits turned[tile][tile / V + 1];  // [column][row]
  constexpr int packs = tile / V, lines = tile_threads / packs;
  const auto row_tiles = static_cast<unsigned>((all.rows + tile - 1) / tile);
  const std::int64_t r0 = static_cast<std::int64_t>(blockIdx.x % row_tiles) * tile;
  const std::int64_t c0 = static_cast<std::int64_t>(blockIdx.x / row_tiles) * tile;
  const auto rows = static_cast<int>(min(all.rows - r0, std::int64_t{tile}));
  const auto columns = static_cast<int>(min(all.columns - c0, std::int64_t{tile}));
  const int pack = static_cast<int>(threadIdx.x) % packs * V;
  const int line = static_cast<int>(threadIdx.x) / packs;
  for (std::int64_t i = blockIdx.y; i < all.others; i += gridDim.y) {
    const auto [at] = gpu::offsets_at(others, i);
    Bits words[tile / lines];
    const T* from = x + at[1] + (c0 + line) * all.column_stride + r0 + pack;
#pragma unroll
    for (int k = 0; k < tile / lines; ++k, from += lines * all.column_stride)
      if (line + k * lines < columns && pack < rows)
        words[k] = *reinterpret_cast<const Bits*>(from);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < tile / lines; ++k) turned[line + k * lines][pack / V] = words[k];
    __syncthreads();
    T* to = y + at[0] + (r0 + line) * all.row_stride + c0 + pack;
#pragma unroll
    for (int k = 0; k < tile / lines; ++k, to += lines * all.row_stride) {
      const int r = line + k * lines;
      if (r >= rows || pack >= columns) continue;
      Bits out;
#pragma unroll
      for (int v = 0; v < V; ++v) out.at[v] = turned[pack + v][r / V].at[r % V];
      *reinterpret_cast<Bits*>(to) = out;
    }
  }
}

// The innermost loop runs along the result but not along the operand; some other loop, the rows
// here, runs along the operand. Both together are a transpose, for every iteration of the rest.
template <class T>  // an integer as wide as the elements
KernelPtr transpose_all(GpuPrepare& prepare, LoopNest nest) {
  constexpr int V = 4 / sizeof(T);
  const Loop columns = nest.back();
  nest.pop_back();
  const auto it = std::ranges::find_if(nest, [](const Loop& l) { return l.strides[1] == 1; });
  const Loop rows = *it;
  nest.erase(it);
  const Transposition all{rows.extent, rows.strides[0], columns.extent, columns.strides[1],
                          iterations(nest)};
  bool in_packs = rows.extent % V == 0 && columns.extent % V == 0 && rows.strides[0] % V == 0 &&
                  columns.strides[1] % V == 0;
  for (const Loop& loop : nest)
    in_packs = in_packs && loop.strides[0] % V == 0 && loop.strides[1] % V == 0;
  const dim3 grid(gpu::blocks_for(rows.extent, tile) * gpu::blocks_for(columns.extent, tile),
                  static_cast<unsigned>(std::min<std::int64_t>(all.others, 65535)));
  return make_kernel([&gpu = prepare.gpu, grid, all, others = Nest<std::int64_t>(nest),
                      in_packs](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    const bool packed = in_packs && gpu::is_aligned(x, 4) && gpu::is_aligned(y, 4);
    gpu::launch(gpu, packed ? transpose_kernel<V, T> : transpose_kernel<1, T>, grid,
                dim3(tile_threads), 0, all, others, x, y);
  });
}

}  // namespace

// Nothing to do: the result is the operand's memory, or a part of it.
KernelPtr Reshape::gpu(GpuPrepare&) const { return nullptr; }
KernelPtr Slice::gpu(GpuPrepare&) const { return nullptr; }

KernelPtr Permute::gpu(GpuPrepare& prepare) const {
  const LoopNest nest = loops_of(prepare.in[0].shape, prepare.out[0].shape, *this);
  const bool rows_stay = nest.back().strides[1] == 1;
  if (size_of(prepare.in[0].dtype) == 2)
    return rows_stay ? copy_rows<std::uint16_t>(prepare, nest)
                     : transpose_all<std::uint16_t>(prepare, nest);
  return rows_stay ? copy_rows<std::uint32_t>(prepare, nest)
                   : transpose_all<std::uint32_t>(prepare, nest);
}

}  // namespace ridge
