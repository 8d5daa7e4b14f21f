#include "ridge/gpu/kernels/collective/part_sums.h"

#include "ridge/gpu/kernels/elementwise.h"

namespace ridge::gpu {
namespace {

constexpr int bytes_per_access = 16;

__global__ void copy_kernel(std::int64_t bytes, bool packed, const char* x, char* y) {
  begin_kernel();
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * bytes_per_access;
  if (packed && first + bytes_per_access <= bytes) {
    *reinterpret_cast<uint4*>(y + first) = *reinterpret_cast<const uint4*>(x + first);
    return;
  }
  for (std::int64_t i = first; i < min(first + bytes_per_access, bytes); ++i) y[i] = x[i];
}

template <class T>
__device__ const T* of_rank(const PartOfAll& part, int r) {
  if (r == part.rank) return static_cast<const T*>(part.own);
  const std::int64_t row = r < part.rank || part.has_own_row ? r : r - 1;
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

// N elements from `first` on, of so many ranks, or of part.ranks if `fixed` is 0.
template <int fixed, int N, class T>
__device__ void sum_elements(const PartOfAll& part, std::int64_t first, float factor, T* y) {
  constexpr int levels = fixed == 0 ? most_levels : fixed == 2 ? 2 : fixed == 4 ? 3 : 4;
  constexpr int at_once = fixed == 0 ? 1 : fixed;
  const int ranks = fixed == 0 ? part.ranks : fixed;
  TreeSum<N, levels> tree;
  float x[N];
#pragma unroll at_once
  for (int r = 0; r < ranks; ++r) {
    load_pack<N>(of_rank<T>(part, r) + first, x);
    tree.add(r, x);
  }
  tree.finish(ranks, factor, x);
  store_pack<N>(y + first, x);
}

template <int fixed, int N, class T>
__global__ void sum_kernel(std::int64_t n, bool packed, PartOfAll part, float factor, T* y) {
  begin_kernel();
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (packed && first + N <= n) return sum_elements<fixed, N>(part, first, factor, y);
  for (std::int64_t i = first; i < min(first + N, n); ++i)
    sum_elements<fixed, 1>(part, i, factor, y);
}

template <class T>
void sum(const Context& gpu, std::int64_t n, const PartOfAll& part, float factor, T* y) {
  constexpr int N = elements_per_access<float>;
  const bool packed = is_aligned(part.own, N * sizeof(T)) && is_aligned(y, N * sizeof(T)) &&
                      is_aligned(part.others, N * sizeof(T));
  const auto run = [&](auto kernel) {
    launch(gpu, kernel, dim3(blocks_for(n, std::int64_t{elementwise_threads} * N)),
           dim3(elementwise_threads), 0, n, packed, part, factor, y);
  };
  if (part.ranks == 2) return run(sum_kernel<2, N, T>);
  if (part.ranks == 4) return run(sum_kernel<4, N, T>);
  if (part.ranks == 8) return run(sum_kernel<8, N, T>);
  run(sum_kernel<0, N, T>);
}

}  // namespace

void copy(const Context& gpu, std::int64_t bytes, const void* x, void* y) {
  if (bytes == 0 || x == y) return;
  const bool packed = is_aligned(x, bytes_per_access) && is_aligned(y, bytes_per_access);
  launch(gpu, copy_kernel,
         dim3(blocks_for(bytes, std::int64_t{elementwise_threads} * bytes_per_access)),
         dim3(elementwise_threads), 0, bytes, packed, static_cast<const char*>(x),
         static_cast<char*>(y));
}

void sum_over_ranks(const Context& gpu, DType dtype, std::int64_t elements, const PartOfAll& part,
                    float factor, void* y) {
  if (elements == 0) return;
  dispatch_floating(dtype,
                    [&]<class T>() { sum(gpu, elements, part, factor, static_cast<T*>(y)); });
}

}  // namespace ridge::gpu
