#include "ridge/gpu/kernels/collective/part_sums.h"

#include <vector>

#include "ridge/gpu/device/tensor_table.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge::gpu {
namespace {

constexpr int bytes_per_access = 16;

template <class... P>
__device__ bool are_aligned(std::size_t bytes, P*... p) {
  return (reinterpret_cast<std::uintptr_t>(p) | ...) % bytes == 0;
}

// The first element of this thread, of those that the tile of its block has of tensor t.
template <class Table>
__device__ std::int64_t first_element(const Table& table, int t, int elements_per_thread) {
  const auto tile = static_cast<std::int64_t>(blockIdx.x - table.first_tile[t]);
  return (tile * blockDim.x + threadIdx.x) * elements_per_thread;
}

template <class Table>
__global__ void copy_kernel(const __grid_constant__ Table table) {
  begin_kernel();
  const int t = table.find(blockIdx.x);
  const Copy& one = table.entry[t];
  const auto* const from = static_cast<const char*>(one.from);
  auto* const to = static_cast<char*>(one.to);
  const std::int64_t first = first_element(table, t, bytes_per_access);
  if (first + bytes_per_access <= one.n && are_aligned(bytes_per_access, from, to)) {
    *reinterpret_cast<uint4*>(to + first) = *reinterpret_cast<const uint4*>(from + first);
    return;
  }
  for (std::int64_t i = first; i < min(first + bytes_per_access, one.n); ++i) to[i] = from[i];
}

template <int N, class From, class To, class Table>
__global__ void round_kernel(const __grid_constant__ Table table) {
  begin_kernel();
  const int t = table.find(blockIdx.x);
  const Rounding& one = table.entry[t];
  const auto* const from = static_cast<const From*>(one.from);
  auto* const to = static_cast<To*>(one.to);
  const bool packed = are_aligned(N * sizeof(From), from) && are_aligned(N * sizeof(To), to);
  const std::int64_t first = first_element(table, t, N);
  if (packed && first + N <= one.n) {
    float x[N];
    load_pack<N>(from + first, x);
    store_pack<N>(to + first, x);
    return;
  }
  for (std::int64_t i = first; i < min(first + N, one.n); ++i) store(&to[i], load(&from[i]));
}

template <class T>
__device__ const T* of_rank(const PartOfAll& part, const RankOfAll& whose, int r) {
  if (r == whose.rank) return static_cast<const T*>(part.own);
  const std::int64_t row = r < whose.rank || whose.has_own_row ? r : r - 1;
  return reinterpret_cast<const T*>(static_cast<const char*>(part.others) + row * part.stride);
}

// Sums N elements over ranks in the order of a binary tree, ((0 + 1) + (2 + 3)) + .., as the host
// does (device/communicator.h). level[l] is the sum of 2^l consecutive ranks that waits for that of
// the next 2^l. Where the number of ranks is a constant, all levels are in registers.
template <int N, int levels>
struct TreeSum {
  float level[levels][N];

  __device__ void add(int r, float (&x)[N]) {
    int l = 0;
#pragma unroll
    for (; (r >> l & 1) != 0; ++l)
      for (int k = 0; k < N; ++k) x[k] = level[l][k] + x[k];
    for (int k = 0; k < N; ++k) level[l][k] = x[k];
  }
  __device__ void finish(int ranks, float factor, float (&sum)[N]) const {
    bool first = true;
#pragma unroll
    for (int l = 0; l < levels; ++l) {
      if ((ranks >> l & 1) == 0) continue;
      for (int k = 0; k < N; ++k) sum[k] = first ? level[l][k] : level[l][k] + sum[k];
      first = false;
    }
    for (int k = 0; k < N; ++k) sum[k] *= factor;
  }
};

constexpr int most_levels = 17;

// N elements from `first` on, of so many ranks, or of whose.ranks if `fixed` is 0.
template <int fixed, int N, class T>
__device__ void sum_elements(const PartOfAll& part, const RankOfAll& whose, std::int64_t first,
                             float factor) {
  constexpr int levels = fixed == 0 ? most_levels : fixed == 2 ? 2 : fixed == 4 ? 3 : 4;
  constexpr int at_once = fixed == 0 ? 1 : fixed;
  const int ranks = fixed == 0 ? whose.ranks : fixed;
  TreeSum<N, levels> tree;
  float x[N];
#pragma unroll at_once
  for (int r = 0; r < ranks; ++r) {
    load_pack<N>(of_rank<T>(part, whose, r) + first, x);
    tree.add(r, x);
  }
  tree.finish(ranks, factor, x);
  store_pack<N>(static_cast<T*>(part.sum) + first, x);
}

template <int fixed, int N, class T, class Table>
__global__ void sum_kernel(const __grid_constant__ Table table, RankOfAll whose, float factor) {
  begin_kernel();
  const int t = table.find(blockIdx.x);
  const PartOfAll& part = table.entry[t];
  const bool packed = are_aligned(N * sizeof(T), part.own, part.others, part.sum);
  const std::int64_t first = first_element(table, t, N);
  if (packed && first + N <= part.n) return sum_elements<fixed, N, T>(part, whose, first, factor);
  for (std::int64_t i = first; i < min(first + N, part.n); ++i)
    sum_elements<fixed, 1, T>(part, whose, i, factor);
}

template <class T>
void sum(const Context& gpu, std::span<const PartOfAll> parts, const RankOfAll& whose,
         float factor) {
  constexpr int N = elements_per_access<float>;
  const auto run = [&]<class Table>(const Table& table) {
    const auto start = [&](auto kernel) {
      launch(gpu, kernel, dim3(table.tiles()), dim3(elementwise_threads), 0, table, whose, factor);
    };
    if (whose.ranks == 2) return start(sum_kernel<2, N, T, Table>);
    if (whose.ranks == 4) return start(sum_kernel<4, N, T, Table>);
    if (whose.ranks == 8) return start(sum_kernel<8, N, T, Table>);
    start(sum_kernel<0, N, T, Table>);
  };
  for_each_table<sizeof(RankOfAll) + sizeof(float)>(parts, std::int64_t{elementwise_threads} * N,
                                                    run);
}

}  // namespace

void sum_over_ranks(const Context& gpu, std::span<const PartOfAll> parts, const RankOfAll& whose,
                    float factor) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<PartOfAll> of_dtype;
    for (const PartOfAll& part : parts)
      if (part.dtype == dtype && part.n > 0) of_dtype.push_back(part);
    if (of_dtype.empty()) continue;
    dispatch_floating(dtype, [&]<class T>() { sum<T>(gpu, of_dtype, whose, factor); });
  }
}

void copy(const Context& gpu, std::span<const Copy> copies) {
  std::vector<Copy> needed;
  for (const Copy& one : copies)
    if (one.n > 0 && one.from != one.to) needed.push_back(one);
  if (needed.empty()) return;
  constexpr std::int64_t tile = std::int64_t{elementwise_threads} * bytes_per_access;
  for_each_table<0>(std::span<const Copy>(needed), tile, [&]<class Table>(const Table& table) {
    launch(gpu, copy_kernel<Table>, dim3(table.tiles()), dim3(elementwise_threads), 0, table);
  });
}

void write_rounded(const Context& gpu, DType from, DType to, std::span<const Rounding> roundings) {
  if (roundings.empty()) return;
  constexpr int N = elements_per_access<float>;
  dispatch_floating(from, [&]<class From>() {
    dispatch_16_bit(to, [&]<class To>() {
      for_each_table<0>(roundings, std::int64_t{elementwise_threads} * N,
                        [&]<class Table>(const Table& table) {
                          launch(gpu, round_kernel<N, From, To, Table>, dim3(table.tiles()),
                                 dim3(elementwise_threads), 0, table);
                        });
    });
  });
}

}  // namespace ridge::gpu
