#include "ridge/ops/reduce.h"

#include <algorithm>

#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"
#include "ridge/gpu/kernels/rows.h"

namespace ridge {
namespace {

using namespace gpu;
using Index = std::int64_t;

constexpr int sum_threads = 256, sum_warps = sum_threads / warp_width;

// How the work is cut. If the innermost loop, which runs along contiguous elements, is kept, a sum
// is a vector as long as that loop, of one row for every iteration of the summed loops; otherwise
// it is a single number, and the innermost loop is one of the summed ones. Every sum's terms are
// shared out in `splits`, whose sums go to the workspace and are added in order. The cut depends on
// the shapes and the card only, and so do the bits of the result.
struct Cut : SumNest {
  std::int64_t sums = 1, terms = 1;  // vectors and rows, or numbers and elements of each

  Cut(const Shape& from, const Shape& to) : SumNest(from, to) {
    sums = iterations(kept);
    terms = iterations(summed) * (innermost_kept ? 1 : extent);
  }

  // As many as keep the card busy, while a split still has `least` terms.
  std::int64_t splits(std::int64_t blocks, int multiprocessors, std::int64_t least) const {
    const std::int64_t wanted = (4 * multiprocessors + blocks - 1) / blocks;
    return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, terms / least));
  }
};

struct CutNests {
  Nest<Index> kept, summed;
  Index extent, sums, terms, terms_per_split;

  // Whether what is summed lies at even distances: so usual that it has kernels without divisions.
  bool is_even() const { return summed.loops <= 1; }
  Index stride() const { return summed.loops == 0 ? 0 : summed.stride[0][0]; }
};

// Terms whose loads are in flight at once, in each thread.
template <bool is_even>
inline constexpr int terms_together = is_even ? 8 : 4;

// A block adds rows of one split in a strip of N columns a lane: each warp every sum_warps-th row,
// and then the warps' sums.
template <bool is_even, int N, class T, class Out>
__global__ void __launch_bounds__(sum_threads, 4)
    sum_rows_kernel(const __grid_constant__ CutNests cut, Index strips, Index stride, const T* x,
                    Out* y) {
  gpu::begin_kernel();
  __shared__ float sums[sum_warps][warp_width * N];
  const Index s = blockIdx.x / strips, strip = blockIdx.x - s * strips;
  const int lane = static_cast<int>(threadIdx.x) % warp_width;
  const int warp = static_cast<int>(threadIdx.x) / warp_width;
  const Index column = (strip * warp_width + lane) * N;
  const auto [start] = offsets_at(cut.kept, s);
  const Index begin = blockIdx.y * cut.terms_per_split;
  const Index end = min(cut.terms, begin + cut.terms_per_split);
  float sum[N] = {};
  if (column < cut.extent) {
    const T* const from = x + start[0] + column;
    constexpr int together = terms_together<is_even>;
    for (Index t = begin + warp; t < end; t += together * sum_warps) {
      Held<T, N> values[together];
#pragma unroll
      for (int k = 0; k < together; ++k) {
        const Index term = t + k * sum_warps;
        if (term < end)
          values[k] = *reinterpret_cast<const Held<T, N>*>(
              from + (is_even ? term * stride : offsets_at(cut.summed, term).at[0]));
      }
#pragma unroll
      for (int k = 0; k < together; ++k)
#pragma unroll
        for (int i = 0; i < N; ++i)
          if (t + k * sum_warps < end) sum[i] += values[k][i];
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) sums[warp][i * warp_width + lane] = sum[i];
  __syncthreads();
  if (warp != 0 || column >= cut.extent) return;
  for (int w = 1; w < sum_warps; ++w)
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += sums[w][i * warp_width + lane];
  store_pack<N>(y + blockIdx.y * (cut.sums * cut.extent) + start[1] + column, sum);
}

// A group, a warp or a block, adds the elements of one split of one number, N a thread at a time;
// `is_run`: they follow each other.
template <bool is_block, bool is_run, int N, class T, class Out>
__global__ void __launch_bounds__(sum_threads, 4)
    sum_elements_kernel(const __grid_constant__ CutNests cut, const T* x, Out* y) {
  gpu::begin_kernel();
  const int rank = static_cast<int>(threadIdx.x) % (is_block ? sum_threads : warp_width);
  const int size = is_block ? sum_threads : warp_width;
  const Index s = is_block ? blockIdx.x : thread_index<Index>() / warp_width;
  if (s >= cut.sums) return;
  const auto [start] = offsets_at(cut.kept, s);
  const Index begin = blockIdx.y * cut.terms_per_split;
  const Index end = min(cut.terms, begin + cut.terms_per_split);
  float sum = 0;
  constexpr int together = terms_together<is_run>;
  for (Index t = begin + rank * N; t < end; t += together * size * N) {
    Held<T, N> values[together];
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const Index at = t + k * size * N;
      if (at >= end) continue;
      Index offset = at;
      if constexpr (!is_run) {
        const Index row = at / cut.extent;
        offset += offsets_at(cut.summed, row).at[0] - row * cut.extent;
      }
      values[k] = *reinterpret_cast<const Held<T, N>*>(x + start[0] + offset);
    }
#pragma unroll
    for (int k = 0; k < together; ++k)
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (t + k * size * N < end) sum += values[k][i];
  }
  sum = is_block ? reduce_block<Sum>(sum) : reduce_warp<Sum>(sum);
  if (rank == 0) store(&y[blockIdx.y * cut.sums + start[1]], sum);
}

// y[i] = the sum of the splits' results for i. A block takes `outputs` of them, and its threads
// take splits side by side.
template <int outputs, class T>
__global__ void __launch_bounds__(sum_threads)
    sum_splits_kernel(Index n, Index splits, const float* partial, T* y) {
  gpu::begin_kernel();
  constexpr int groups = sum_threads / outputs;
  __shared__ float sums[groups][outputs];
  const int output = static_cast<int>(threadIdx.x) % outputs;
  const int group = static_cast<int>(threadIdx.x) / outputs;
  const Index i = static_cast<Index>(blockIdx.x) * outputs + output;
  float sum = 0;
  if (i < n) {
#pragma unroll 8
    for (Index split = group; split < splits; split += groups) sum += partial[split * n + i];
  }
  if constexpr (outputs == 1) {
    sum = reduce_block<Sum>(sum);
  } else {
    sums[group][output] = sum;
    __syncthreads();
    for (int t = 1; group == 0 && t < groups; ++t) sum += sums[t][output];
  }
  if (group == 0 && i < n) store(&y[i], sum);
}

// Launch geometry: a block for each of few results, or for 32 of many.
template <class T>
void sum_splits(const Context& gpu, Index n, Index splits, const float* partial, T* y) {
  if (n <= 2 * gpu.card.multiprocessors)
    launch(gpu, sum_splits_kernel<1, T>, dim3(blocks_for(n, 1)), dim3(sum_threads), 0, n, splits,
           partial, y);
  else
    launch(gpu, sum_splits_kernel<32, T>, dim3(blocks_for(n, 32)), dim3(sum_threads), 0, n, splits,
           partial, y);
}

// Whether the rows of x can be read in packs of N.
bool runs_in_packs(const Cut& cut, std::int64_t N) {
  bool all = cut.extent % N == 0;
  for (const LoopNest* nest : {&cut.kept, &cut.summed})
    for (const NestedLoop& loop : *nest) all = all && loop.strides[0] % N == 0;
  return all;
}

// Launches the kernel that adds the terms of each split, to y if there is but one. Whether a warp
// or a block has a sum is launch geometry: as many threads as its terms keep busy.
template <int N, class T, class Out>
void sum_terms(const Context& gpu, const Cut& cut, const CutNests& nests, Index splits, const T* x,
               Out* y) {
  const auto grid = [&](Index blocks) {
    return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(splits));
  };
  const bool is_run = nests.summed.loops == 0;
  if (cut.innermost_kept) {
    const Index strips = blocks_for(cut.extent, warp_width * N);
    launch(gpu,
           nests.is_even() ? sum_rows_kernel<true, N, T, Out> : sum_rows_kernel<false, N, T, Out>,
           grid(cut.sums * strips), dim3(sum_threads), 0, nests, strips, nests.stride(), x, y);
  } else if (nests.terms_per_split <= 8 * warp_width * N ||
             (nests.terms_per_split <= 32 * warp_width * N &&
              cut.sums >= 16 * sum_warps * gpu.card.multiprocessors / 4)) {
    launch(gpu,
           is_run ? sum_elements_kernel<false, true, N, T, Out>
                  : sum_elements_kernel<false, false, N, T, Out>,
           grid(blocks_for(cut.sums, sum_warps)), dim3(sum_threads), 0, nests, x, y);
  } else {
    launch(gpu,
           is_run ? sum_elements_kernel<true, true, N, T, Out>
                  : sum_elements_kernel<true, false, N, T, Out>,
           grid(cut.sums), dim3(sum_threads), 0, nests, x, y);
  }
}

template <class T>
KernelPtr sum(GpuPrepare& prepare) {
  constexpr int wide = elements_per_access<T>;
  const Cut cut(prepare.in[0].shape, prepare.out[0].shape);
  const Index n = prepare.out[0].numel();
  const Index blocks =
      cut.innermost_kept ? cut.sums * blocks_for(cut.extent, warp_width * wide) : cut.sums;
  const Index least = cut.innermost_kept ? 4 * sum_warps : 16 * sum_threads;
  Index splits = cut.splits(blocks, prepare.gpu.card.multiprocessors, least);
  // Splits of whole packs.
  const Index per_split = ((cut.terms + splits - 1) / splits + wide - 1) / wide * wide;
  splits = (cut.terms + per_split - 1) / per_split;
  if (splits > 1) prepare.workspace = static_cast<std::size_t>(splits * n) * sizeof(float);
  const CutNests nests{
      Nest<Index>(cut.kept), Nest<Index>(cut.summed), cut.extent, cut.sums, cut.terms, per_split};
  const bool in_packs = runs_in_packs(cut, wide);
  return make_kernel([&gpu = prepare.gpu, n, cut, nests, splits, in_packs](const Launch& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>();
    auto* partial = static_cast<float*>(call.workspace);
    const auto add = [&](auto* to) {
      if (in_packs && is_aligned(x, wide * sizeof(T)) && is_aligned(to, wide * sizeof(*to)))
        sum_terms<wide>(gpu, cut, nests, splits, x, to);
      else
        sum_terms<1>(gpu, cut, nests, splits, x, to);
    };
    if (splits == 1) return add(y);
    add(partial);
    sum_splits(gpu, n, splits, partial, y);
  });
}

}  // namespace

KernelPtr SumTo::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return sum<T>(prepare); });
}

}  // namespace ridge
