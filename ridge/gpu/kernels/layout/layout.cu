#include "ridge/ops/layout.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"

namespace ridge {
namespace {

using gpu::Nest;

constexpr int moves_per_thread = 4;

// Bits that travel together.
template <int bytes>
using Word = std::conditional_t<bytes == 2, gpu::Pack<std::uint16_t, 1>,
                                gpu::Pack<std::uint32_t, (bytes + 3) / 4>>;

// Elements of T as a kernel moves them that need not know what they mean.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;

// What a kernel writes and keeps in shared memory, which takes no types that initialize themselves.
template <class To>
using Written = std::conditional_t<std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>,
                                   std::uint16_t, To>;

template <class To, class From>
__device__ Written<To> converted(const From& x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else {
    To y;
    gpu::store(&y, gpu::load(&x));
    if constexpr (std::is_same_v<To, Written<To>>)
      return y;
    else
      return y.bits;
  }
}

// y[i] = x[where the nest's second offset is at iteration i].
template <class From, class To, class Index>
__global__ void gather_kernel(Index n, const __grid_constant__ Nest<Index> nest, const From* x,
                              Written<To>* y) {
  gpu::begin_kernel();
  const Index first =
      static_cast<Index>(blockIdx.x) * (moves_per_thread * gpu::elementwise_threads) + threadIdx.x;
  From words[moves_per_thread];
#pragma unroll
  for (int m = 0; m < moves_per_thread; ++m) {
    const Index i = first + m * gpu::elementwise_threads;
    if (i < n) words[m] = x[gpu::offsets_at(nest, i).at[1]];
  }
#pragma unroll
  for (int m = 0; m < moves_per_thread; ++m) {
    const Index i = first + m * gpu::elementwise_threads;
    if (i < n) y[i] = converted<To>(words[m]);
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

template <class From, class To>
void gather(const gpu::Context& gpu, const LoopNest& nest, const void* x, void* y) {
  const std::int64_t n = iterations(nest);
  gpu::dispatch_index(n, [&]<class Index>() {
    gpu::launch(gpu, gather_kernel<From, To, Index>,
                dim3(gpu::blocks_for(n, moves_per_thread * gpu::elementwise_threads)),
                dim3(gpu::elementwise_threads), 0, static_cast<Index>(n), Nest<Index>(nest),
                static_cast<const From*>(x), static_cast<Written<To>*>(y));
  });
}

template <int bytes>
void gather_words(const gpu::Context& gpu, const LoopNest& nest, const void* x, void* y) {
  gather<Word<bytes>, Word<bytes>>(gpu, nest, x, y);
}

template <class From, class To>
KernelPtr gather_all(GpuPrepare& prepare, const LoopNest& nest) {
  return make_kernel([&gpu = prepare.gpu, nest](const Launch& call) {
    gather<From, To>(gpu, nest, call.inputs[0], call.outputs[0]);
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
        return gather_words<16>(gpu, runs, x, y);
      case 8:
        return gather_words<8>(gpu, runs, x, y);
      case 4:
        return gather_words<4>(gpu, runs, x, y);
      default:
        return gather_words<2>(gpu, runs, x, y);
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
// nest of the other loops. Both sides are accessed along their runs, V elements at a time, and
// transpose in shared memory.
template <int V, class From, class To>
__global__ __launch_bounds__(tile_threads, sizeof(To) == 2 ? 6 : 4) void transpose_kernel(
    const __grid_constant__ Transposition all, const __grid_constant__ Nest<std::int64_t> others,
    const From* x, Written<To>* y) {
  gpu::begin_kernel();
  using Bits = gpu::Pack<Written<To>, V>;
  __shared__ Bits transposed[tile][tile / V + 1];  // [column][row]
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
    const From* from = x + at[1] + (c0 + line) * all.column_stride + r0 + pack;
#pragma unroll
    for (int k = 0; k < tile / lines; ++k, from += lines * all.column_stride)
      if (line + k * lines < columns && pack < rows) {
        const auto read = *reinterpret_cast<const gpu::Pack<From, V>*>(from);
#pragma unroll
        for (int v = 0; v < V; ++v) words[k].at[v] = converted<To>(read.at[v]);
      }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < tile / lines; ++k) transposed[line + k * lines][pack / V] = words[k];
    __syncthreads();
    Written<To>* to = y + at[0] + (r0 + line) * all.row_stride + c0 + pack;
#pragma unroll
    for (int k = 0; k < tile / lines; ++k, to += lines * all.row_stride) {
      const int r = line + k * lines;
      if (r >= rows || pack >= columns) continue;
      Bits out;
#pragma unroll
      for (int v = 0; v < V; ++v) out.at[v] = transposed[pack + v][r / V].at[r % V];
      *reinterpret_cast<Bits*>(to) = out;
    }
  }
}

constexpr int thin_threads = 128, thin_pack = 4, thin_rows = thin_threads * thin_pack;
constexpr std::int64_t most_thin_columns = 16;

// The same where columns are few and rows of y follow one another without gaps, as in images that
// leave the planes of their colors: y[r * columns + c] = x[c * column_stride + r]. A thread block
// transposes thin_rows rows in shared memory, where they have the order of y.
template <class From, class To>
__global__ __launch_bounds__(thin_threads) void thin_kernel(
    const __grid_constant__ Transposition all, const __grid_constant__ Nest<std::int64_t> others,
    const From* x, Written<To>* y) {
  gpu::begin_kernel();
  const auto* const packs = gpu::dynamic_shared<uint4>();
  auto* const transposed = gpu::dynamic_shared<Written<To>>();
  constexpr int per_access = 16 / sizeof(To);
  const auto columns = static_cast<int>(all.columns);
  const std::int64_t r0 = static_cast<std::int64_t>(blockIdx.x) * thin_rows;
  const auto rows = static_cast<int>(min(all.rows - r0, std::int64_t{thin_rows}));
  const int first = static_cast<int>(threadIdx.x) * thin_pack;
  for (std::int64_t i = blockIdx.y; i < all.others; i += gridDim.y) {
    const auto [at] = gpu::offsets_at(others, i);
    for (int c = 0; c < columns; ++c) {
      const From* from = x + at[1] + c * all.column_stride + r0 + first;
      const bool packed = reinterpret_cast<std::uintptr_t>(from) % (thin_pack * sizeof(From)) == 0;
      gpu::Pack<From, thin_pack> read;
      if (packed && first + thin_pack <= rows) {
        read = *reinterpret_cast<const gpu::Pack<From, thin_pack>*>(from);
      } else {
#pragma unroll
        for (int v = 0; v < thin_pack; ++v)
          if (first + v < rows) read.at[v] = from[v];
      }
#pragma unroll
      for (int v = 0; v < thin_pack; ++v)
        if (first + v < rows) transposed[(first + v) * columns + c] = converted<To>(read.at[v]);
    }
    __syncthreads();
    Written<To>* to = y + at[0] + r0 * columns;
    const int n = rows * columns;
    const bool packed = reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
    const int in_packs = packed ? n / per_access : 0;
    for (int p = static_cast<int>(threadIdx.x); p < in_packs; p += thin_threads)
      reinterpret_cast<uint4*>(to)[p] = packs[p];
    for (int e = in_packs * per_access + static_cast<int>(threadIdx.x); e < n; e += thin_threads)
      to[e] = transposed[e];
    __syncthreads();
  }
}

// What candidates are asked about a transposition: all its loops, and those besides the rows and
// columns.
struct TransposeWork {
  LoopNest whole, others;
  Transposition all;

  // The innermost loop runs along the result but not along the operand; some other loop, the rows
  // here, runs along the operand. Both together are a transpose, for every iteration of the rest.
  explicit TransposeWork(const LoopNest& nest) : whole(nest), others(nest) {
    const NestedLoop columns = others.back();
    others.pop_back();
    const auto it =
        std::ranges::find_if(others, [](const NestedLoop& l) { return l.strides[1] == 1; });
    const NestedLoop rows = *it;
    others.erase(it);
    all = {rows.extent, rows.strides[0], columns.extent, columns.strides[1], iterations(others)};
  }
  dim3 grid(unsigned tiles) const {
    return dim3(tiles, static_cast<unsigned>(std::min<std::int64_t>(all.others, 65535)));
  }
};

template <class From, class To>
KernelPtr transpose_thin(const TransposeWork& work, GpuPrepare& prepare) {
  const dim3 grid = work.grid(gpu::blocks_for(work.all.rows, thin_rows));
  const std::size_t shared = thin_rows * static_cast<std::size_t>(work.all.columns) * sizeof(To);
  return make_kernel([&gpu = prepare.gpu, grid, shared, all = work.all,
                      others = Nest<std::int64_t>(work.others)](const Launch& call) {
    gpu::launch(gpu, thin_kernel<From, To>, grid, dim3(thin_threads), shared, all, others,
                call.in<From>(0), call.out<Written<To>>());
  });
}

template <class From, class To>
KernelPtr transpose_tiles(const TransposeWork& work, GpuPrepare& prepare) {
  constexpr int V = 4 / sizeof(To);
  const Transposition& all = work.all;
  bool in_packs = all.rows % V == 0 && all.columns % V == 0 && all.row_stride % V == 0 &&
                  all.column_stride % V == 0;
  for (const NestedLoop& loop : work.others)
    in_packs = in_packs && loop.strides[0] % V == 0 && loop.strides[1] % V == 0;
  const dim3 grid = work.grid(gpu::blocks_for(all.rows, tile) * gpu::blocks_for(all.columns, tile));
  return make_kernel([&gpu = prepare.gpu, grid, all, others = Nest<std::int64_t>(work.others),
                      in_packs](const Launch& call) {
    const From* x = call.in<From>(0);
    auto* y = call.out<Written<To>>();
    const bool packed =
        in_packs && gpu::is_aligned(x, V * sizeof(From)) && gpu::is_aligned(y, V * sizeof(To));
    gpu::launch(gpu, packed ? transpose_kernel<V, From, To> : transpose_kernel<1, From, To>, grid,
                dim3(tile_threads), 0, all, others, x, y);
  });
}

// From and To are integers as wide as the elements unless these are converted. Tiles of few rows or
// columns would be mostly empty; what is gathered unevenly lies close together then.
template <class From, class To>
constexpr gpu::Candidate<TransposeWork> transposes[] = {
    {.name = [](const TransposeWork&) -> std::string { return "strips of few columns"; },
     .supports =
         [](const TransposeWork& w) {
           return w.all.columns <= most_thin_columns && w.all.row_stride == w.all.columns;
         },
     .expectation = [](const TransposeWork& w,
                       const gpu::Card&) { return w.all.rows >= thin_rows / 2 ? 2 : -1; },
     .prepare = transpose_thin<From, To>},
    {.name = [](const TransposeWork&) -> std::string { return "tiles"; },
     .supports = [](const TransposeWork&) { return true; },
     .expectation =
         [](const TransposeWork& w, const gpu::Card&) {
           constexpr std::int64_t little = 16;
           return std::min(w.all.rows, w.all.columns) >= little ? 1 : -1;
         },
     .prepare = transpose_tiles<From, To>},
    {.name = [](const TransposeWork&) -> std::string { return "an element at a time"; },
     .supports = [](const TransposeWork&) { return true; },
     .expectation = [](const TransposeWork&, const gpu::Card&) { return 0; },
     .prepare = [](const TransposeWork& w,
                   GpuPrepare& prepare) { return gather_all<From, To>(prepare, w.whole); }},
};

// Not timed: a step has many, most of them short.
template <class From, class To>
KernelPtr transpose_all(GpuPrepare& prepare, const LoopNest& whole) {
  return gpu::expected_kernel<TransposeWork>(prepare, TransposeWork(whole), transposes<From, To>);
}

}  // namespace

// Nothing to do: the result is the operand's memory, or a part of it.
KernelPtr Reshape::gpu(GpuPrepare&) const { return nullptr; }
KernelPtr Slice::gpu(GpuPrepare&) const { return nullptr; }

KernelPtr Permute::gpu(GpuPrepare& prepare) const {
  const LoopNest nest = loops_of(prepare.in[0].shape, prepare.out[0].shape, *this);
  const bool rows_stay = nest.back().strides[1] == 1;
  return gpu::dispatch_floating(prepare.in[0].dtype, [&]<class From>() {
    return gpu::dispatch_floating(prepare.out[0].dtype, [&]<class To>() {
      using Bits = BitsOf<From>;
      if constexpr (!std::is_same_v<From, To>)
        return rows_stay ? gather_all<From, To>(prepare, nest)
                         : transpose_all<From, To>(prepare, nest);
      else
        return rows_stay ? copy_rows<Bits>(prepare, nest)
                         : transpose_all<Bits, Bits>(prepare, nest);
    });
  });
}

}  // namespace ridge
