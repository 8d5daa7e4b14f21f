#include "ridge/ops/embedding.h"

#include <algorithm>
#include <bit>
#include <string>

#include "ridge/gpu/device/candidates.h"
#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"

namespace ridge {
namespace {

using namespace gpu;

constexpr int gather_threads = 256, gathers_per_thread = 4;

// y[i, :] = table[ids[i], :], N elements in one access.
template <int N, class T, class Index>
__global__ void __launch_bounds__(gather_threads)
    gather_kernel(Index packs, Index packs_per_row, const T* table, const std::int32_t* ids, T* y) {
  gpu::begin_kernel();
  const Index first =
      static_cast<Index>(blockIdx.x) * (gather_threads * gathers_per_thread) + threadIdx.x;
  using Bits = Pack<T, N>;
  const Bits* from[gathers_per_thread];
  Bits words[gathers_per_thread];
#pragma unroll
  for (int k = 0; k < gathers_per_thread; ++k) {
    const Index i = first + k * gather_threads, row = i / packs_per_row;
    if (i < packs)
      from[k] = reinterpret_cast<const Bits*>(table) +
                static_cast<std::int64_t>(ids[row]) * packs_per_row + (i - row * packs_per_row);
  }
#pragma unroll
  for (int k = 0; k < gathers_per_thread; ++k)
    if (first + k * gather_threads < packs) words[k] = *from[k];
#pragma unroll
  for (int k = 0; k < gathers_per_thread; ++k)
    if (first + k * gather_threads < packs)
      reinterpret_cast<Bits*>(y)[first + k * gather_threads] = words[k];
}

template <class T>  // an integer as wide as the elements
KernelPtr gather(GpuPrepare& prepare) {
  constexpr std::int64_t wide = 16 / sizeof(T);
  const std::int64_t columns = prepare.in[0].shape[1], n = prepare.out[0].numel();
  return dispatch_index(n, [&]<class Index>() {
    return make_kernel([&gpu = prepare.gpu, columns, n](const Launch& call) {
      const T* table = call.in<T>(0);
      T* y = call.out<T>();
      const bool packed = columns % wide == 0 && is_aligned(table, 16) && is_aligned(y, 16);
      const std::int64_t width = packed ? wide : 1;
      launch(gpu, packed ? gather_kernel<wide, T, Index> : gather_kernel<1, T, Index>,
             dim3(blocks_for(n / width, gather_threads * gathers_per_thread)), dim3(gather_threads),
             0, static_cast<Index>(n / width), static_cast<Index>(columns / width), table,
             call.in<std::int32_t>(1), y);
    });
  });
}

constexpr int sort_threads = 1024, sort_warps = sort_threads / warp_width;
constexpr int most_rows_per_block = 256;  // as many counters a warp fit into 48 KiB

// The sum over the threads before this one.
__device__ int sum_before(int x) {
  __shared__ int of_warp[sort_warps];
  const int lane = static_cast<int>(threadIdx.x) % warp_width;
  const int warp = static_cast<int>(threadIdx.x) / warp_width;
  int sum = x;
#pragma unroll
  for (int step = 1; step < warp_width; step *= 2) {
    const int other = shuffle(sum, lane >= step ? lane - step : lane);
    if (lane >= step) sum += other;
  }
  if (lane == warp_width - 1) of_warp[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += of_warp[w];
  return sum - x;
}

// f(position, key) for the ids of the calling warp's share, by all lanes together; past the end,
// the key is -1. The share is a run, and the lanes go through it side by side.
template <class F>
__device__ void each_of_share(const std::int32_t* ids, int count, int mask, const F& f) {
  constexpr int together = 8;  // ids whose loads are in flight at once
  const int lane = static_cast<int>(threadIdx.x) % warp_width;
  const int warp = static_cast<int>(threadIdx.x) / warp_width;
  const int share = (count + sort_warps - 1) / sort_warps;
  const int begin = min(warp * share, count), end = min(begin + share, count);
  for (int i = begin + lane; i - lane < end; i += together * warp_width) {
    int id[together];
#pragma unroll
    for (int k = 0; k < together; ++k)
      id[k] = i + k * warp_width < end ? ids[i + k * warp_width] & mask : -1;
#pragma unroll
    for (int k = 0; k < together; ++k) f(i + k * warp_width, id[k]);
  }
}

// Counting sort: the positions of ids, ordered by id & mask, which is a row of the table or a
// bucket of rows, and, where equal, by position. Those of row v are order[first[v]] up to
// order[first[v + 1]]. A block places the ids of its own rows, and finds by itself where they
// begin.
__global__ void __launch_bounds__(sort_threads)
    sort_kernel(int count, int rows, int mask, int rows_per_block, const std::int32_t* ids,
                int* first, int* order) {
  gpu::begin_kernel();
  // [warp][row]: how many, and then where its next one goes
  int* const places = gpu::dynamic_shared<int>();
  const int begin = static_cast<int>(blockIdx.x) * rows_per_block;
  const int mine = min(rows_per_block, rows - begin);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp_width;
  int* const own = places + thread / warp_width * rows_per_block;
  for (int i = thread; i < sort_warps * rows_per_block; i += sort_threads) places[i] = 0;
  __syncthreads();

  int before = 0;
  each_of_share(ids, count, mask, [&](int, int id) {
    const int row = id - begin;
    before += id >= 0 && row < 0;
    if (row >= 0 && row < mine) atomicAdd(&own[row], 1);
  });
  before = reduce_block<Sum>(before);  // and a barrier
  __syncthreads();

  int of_row = 0;  // of row `thread`
  if (thread < mine)
    for (int w = 0; w < sort_warps; ++w) of_row += places[w * rows_per_block + thread];
  const int start = before + sum_before(of_row);
  if (thread < mine) {
    first[begin + thread] = start;
    for (int w = 0, next = start; w < sort_warps; ++w) {
      int& place = places[w * rows_per_block + thread];
      const int here = place;
      place = next;
      next += here;
    }
  }
  if (blockIdx.x == 0 && thread == 0) first[rows] = count;
  __syncthreads();

  each_of_share(ids, count, mask, [&](int position, int id) {
    const int row = id - begin;
    const bool is_mine = id >= 0 && row >= 0 && row < mine;
    for (std::uint64_t left = ballot(is_mine); left != 0;) {
      const int leader = __ffsll(static_cast<long long>(left)) - 1;
      const int leader_row = shuffle(row, leader);
      const std::uint64_t same = ballot(is_mine && row == leader_row);
      left &= ~same;
      const int place = own[leader_row];
      sync_warp();
      if (same >> lane & 1)
        order[place + __popcll(same & ((std::uint64_t{1} << lane) - 1))] = position;
      if (lane == leader) own[leader_row] = place + __popcll(same);
      sync_warp();
    }
  });
}

// A block of the scattering kernels owns as many rows of the table as it has warps, and as far
// apart as can be, because ids that are frequent are often neighbors.
constexpr int scatter_warps = 8, scatter_threads = scatter_warps * warp_width;
constexpr int most_for_a_warp = 32;  // ids of a row that one warp adds by itself

__device__ std::int64_t owned_row(int warp) {
  return blockIdx.x + static_cast<std::int64_t>(warp) * gridDim.x;
}
__device__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % warp_width; }
__device__ int warp_of_thread() { return static_cast<int>(threadIdx.x) / warp_width; }
__device__ int lanes_before(std::uint64_t lanes) {  // the calling one
  return __popcll(lanes & ((std::uint64_t{1} << lane_of_thread()) - 1));
}

// What a warp sums at once: S strips of N columns a lane, the warp's width apart, over U rows of dy
// whose loads are in flight together. Either many strips of few rows or many rows of one strip.
template <int N, int S, int U>
struct Strips {
  static constexpr std::int64_t columns = S * warp_width * N;

  float sum[S][N];

  __device__ void clear() {
#pragma unroll
    for (int s = 0; s < S; ++s)
#pragma unroll
      for (int j = 0; j < N; ++j) sum[s][j] = 0;
  }

  // f(strip, its column) for those that are before `end`; `first` is the first strip's column.
  template <class F>
  __device__ static void each(std::int64_t first, std::int64_t end, const F& f) {
#pragma unroll
    for (int s = 0; s < S; ++s) {
      const std::int64_t column = first + (s * warp_width + lane_of_thread()) * N;
      if (column < end) f(s, column);
    }
  }

  // sum += the rows order[begin] up to order[end] of dy[.., width].
  template <class T, class Order>
  __device__ void add(const T* dy, const Order* order, int begin, int end, std::int64_t first,
                      std::int64_t width) {
    for (int i = begin; i < end; i += U) {
      Pack<T, N> packs[U][S];
#pragma unroll
      for (int k = 0; k < U; ++k)
        if (i + k < end) {
          const T* const row = dy + static_cast<std::int64_t>(order[i + k]) * width;
          each(first, width, [&](int s, std::int64_t column) {
            packs[k][s] = *reinterpret_cast<const Pack<T, N>*>(row + column);
          });
        }
#pragma unroll
      for (int k = 0; k < U; ++k)
        if (i + k < end)
#pragma unroll
          for (int s = 0; s < S; ++s)
#pragma unroll
            for (int j = 0; j < N; ++j) sum[s][j] += load(&packs[k][s].at[j]);
    }
  }

  template <class T>
  __device__ void store(T* row, std::int64_t first, std::int64_t width) const {
    each(first, width, [&](int s, std::int64_t column) { store_pack<N>(row + column, sum[s]); });
  }

  // The sum of what all warps of the block have, in the order of the warps; in warp `to`.
  __device__ void gather(int to) {
    __shared__ float parts[scatter_warps][warp_width];
#pragma unroll
    for (int s = 0; s < S; ++s)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        __syncthreads();  // the last use of `parts` is over
        parts[warp_of_thread()][lane_of_thread()] = sum[s][j];
        __syncthreads();
        if (warp_of_thread() != to) continue;
        sum[s][j] = parts[0][lane_of_thread()];
        for (int w = 1; w < scatter_warps; ++w) sum[s][j] += parts[w][lane_of_thread()];
      }
  }
};

// dtable[v, :] = the sum of the dy of v for the rows v that the block owns; counts[w] ids are those
// of warp w's row. add_own(sums, first column) adds all of the warp's row, if they are few; of a
// row of many, each warp adds its share with add_share(row's warp, sums, first column).
template <class Sums, class T, class AddOwn, class AddShare>
__device__ void write_rows(std::int64_t rows, std::int64_t columns,
                           const int (&counts)[scatter_warps], T* dtable, const AddOwn& add_own,
                           const AddShare& add_share) {
  const int warp = warp_of_thread();
  unsigned long_rows = 0;
  for (int w = 0; w < scatter_warps; ++w)
    if (owned_row(w) < rows && counts[w] > most_for_a_warp) long_rows |= 1u << w;
  const bool is_short = owned_row(warp) < rows && !(long_rows >> warp & 1);
  for (std::int64_t c = blockIdx.y * Sums::columns; c < columns; c += gridDim.y * Sums::columns) {
    Sums sums;
    if (is_short) {
      sums.clear();
      add_own(sums, c);
      sums.store(dtable + owned_row(warp) * columns, c, columns);
    }
    for (int w = 0; w < scatter_warps; ++w) {
      if (!(long_rows >> w & 1)) continue;
      sums.clear();
      add_share(w, sums, c);
      sums.gather(w);
      if (warp == w) sums.store(dtable + owned_row(w) * columns, c, columns);
    }
  }
}

// After sort_kernel.
template <class Sums, class T>
__global__ void __launch_bounds__(scatter_threads, 3)
    scatter_kernel(std::int64_t rows, std::int64_t columns, const T* dy, const int* first,
                   const int* order, T* dtable) {
  gpu::begin_kernel();
  __shared__ int begins[scatter_warps], counts[scatter_warps];
  const int thread = static_cast<int>(threadIdx.x), warp = warp_of_thread();
  if (thread < scatter_warps && owned_row(thread) < rows) {
    begins[thread] = first[owned_row(thread)];
    counts[thread] = first[owned_row(thread) + 1] - begins[thread];
  }
  __syncthreads();
  write_rows<Sums>(
      rows, columns, counts, dtable,
      [&](Sums& sums, std::int64_t c) {
        sums.add(dy, order, begins[warp], begins[warp] + counts[warp], c, columns);
      },
      [&](int w, Sums& sums, std::int64_t c) {
        const int share = (counts[w] + scatter_warps - 1) / scatter_warps;
        const int end = begins[w] + counts[w], from = min(begins[w] + warp * share, end);
        sums.add(dy, order, from, min(from + share, end), c, columns);
      });
}

// Ids that every block can go through by itself: a position and the warp of an owned row have 16
// bits together.
constexpr int most_for_a_block = 8192;

// The hits among a warp's share of the ids, in order: ids of the block's rows, which their lowest
// bits tell. hits[i] = position * scatter_warps + the row's warp. Returns how many there are.
__device__ int find_hits(const std::int32_t* ids, int begin, int end, int log2_blocks,
                         std::uint16_t* hits) {
  constexpr int together = 16;
  const int mask = (1 << log2_blocks) - 1, block = static_cast<int>(blockIdx.x);
  int n = 0;
  for (int i = begin; i < end; i += together * warp_width) {
    int id[together];
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const int at = i + k * warp_width + lane_of_thread();
      id[k] = at < end ? ids[at] : -1;
    }
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const bool hit = id[k] >= 0 && (id[k] & mask) == block;
      const std::uint64_t all = ballot(hit);
      const int position = i + k * warp_width + lane_of_thread();
      if (hit)
        hits[n + lanes_before(all)] =
            static_cast<std::uint16_t>(position * scatter_warps + (id[k] >> log2_blocks));
      n += __popcll(all);
    }
  }
  return n;
}

// f(how many lanes have a hit of warp w's row, whether this one has, its position, how many lanes
// before it have) for the hits of one share, a warp's width of them at a time.
template <class F>
__device__ void each_hit_of(int w, const std::uint16_t* hits, int count, const F& f) {
  for (int i = lane_of_thread(); i - lane_of_thread() < count; i += warp_width) {
    const int hit = i < count ? hits[i] : -1;
    const bool match = hit >= 0 && hit % scatter_warps == w;
    const std::uint64_t all = ballot(match);
    f(__popcll(all), match, hit / scatter_warps, lanes_before(all));
  }
}

// The same without sorting, for few ids: each block looks through all of them. There are
// 2^log2_blocks blocks.
template <class Sums, class T>
__global__ void __launch_bounds__(scatter_threads, 3)
    find_and_scatter_kernel(int count, int log2_blocks, std::int64_t rows, std::int64_t columns,
                            const std::int32_t* ids, const T* dy, T* dtable) {
  gpu::begin_kernel();
  std::uint16_t* const hits = gpu::dynamic_shared<std::uint16_t>();  // by share
  __shared__ int found[scatter_warps], counts[scatter_warps];
  __shared__ std::uint16_t own[scatter_warps][most_for_a_warp], some[scatter_warps][warp_width];
  const int share = (count + scatter_warps - 1) / scatter_warps, warp = warp_of_thread();
  const int begin = min(warp * share, count);
  const int n = find_hits(ids, begin, min(begin + share, count), log2_blocks, hits + begin);
  if (lane_of_thread() == 0) found[warp] = n;
  __syncthreads();
  int owned = 0;
  for (int w = 0; w < scatter_warps; ++w)
    each_hit_of(warp, hits + min(w * share, count), found[w],
                [&](int matches, bool match, int position, int before) {
                  if (match && owned + before < most_for_a_warp)
                    own[warp][owned + before] = static_cast<std::uint16_t>(position);
                  owned += matches;
                });
  if (lane_of_thread() == 0) counts[warp] = owned;
  __syncthreads();
  write_rows<Sums>(
      rows, columns, counts, dtable,
      [&](Sums& sums, std::int64_t c) { sums.add(dy, own[warp], 0, owned, c, columns); },
      [&](int w, Sums& sums, std::int64_t c) {
        each_hit_of(w, hits + begin, n, [&](int matches, bool match, int position, int before) {
          if (match) some[warp][before] = static_cast<std::uint16_t>(position);
          sync_warp();
          sums.add(dy, some[warp], 0, matches, c, columns);
          sync_warp();
        });
      });
}

struct Scatter {
  std::int64_t rows, columns;
  int count;  // of ids

  // Blocks for so many groups of rows, sharing out the columns among more where the groups alone
  // would not keep the card busy.
  dim3 grid(const Context& gpu, std::int64_t groups, std::int64_t at_once,
            std::int64_t per_multiprocessor) const {
    const std::int64_t wanted = per_multiprocessor * gpu.card.multiprocessors / groups;
    const std::int64_t most = (columns + at_once - 1) / at_once;
    return dim3(static_cast<unsigned>(groups),
                static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, most)));
  }
};

// Calls run.operator()<Sums>() with the strips of columns that fit the launch.
template <class T, class Run>
void with_strips(const Scatter& op, const Launch& call, const Run& run) {
  constexpr int wide = elements_per_access<T>;
  const bool packed =
      op.columns % wide == 0 && is_aligned(call.inputs[0], 16) && is_aligned(call.outputs[0], 16);
  if (!packed)
    run.template operator()<Strips<1, 1, 8>>();
  else if (op.count <= 2 * op.rows)
    run.template operator()<Strips<wide, 4, 1>>();
  else
    run.template operator()<Strips<wide, 1, 8>>();
}

template <class Sums, class T>
void find_and_scatter(const Context& gpu, const Scatter& op, const Launch& call) {
  const std::int64_t groups = (op.rows + scatter_warps - 1) / scatter_warps;
  int log2_blocks = 0;
  while (std::int64_t{1} << log2_blocks < groups) ++log2_blocks;
  launch(gpu, find_and_scatter_kernel<Sums, T>,
         op.grid(gpu, std::int64_t{1} << log2_blocks, Sums::columns, 4), dim3(scatter_threads),
         static_cast<std::size_t>(op.count) * sizeof(std::uint16_t), op.count, log2_blocks, op.rows,
         op.columns, call.in<std::int32_t>(1), call.in<T>(0), call.out<T>());
}

// first[rows + 1] and order[count], from ids of which the bits of `mask` count.
void sort(const Context& gpu, int count, int rows, int mask, const std::int32_t* ids, int* first,
          int* order) {
  const int rows_per_block =
      std::clamp((rows - 1) / gpu.card.multiprocessors + 1, 1, most_rows_per_block);
  launch(gpu, sort_kernel, dim3(blocks_for(rows, rows_per_block)), dim3(sort_threads),
         static_cast<std::size_t>(sort_warps * rows_per_block) * sizeof(int), count, rows, mask,
         rows_per_block, ids, first, order);
}

template <class Sums, class T>
void sort_and_scatter(const Context& gpu, const Scatter& op, const Launch& call) {
  auto* first = static_cast<int*>(call.workspace);
  auto* order = first + op.rows + 1;
  sort(gpu, op.count, static_cast<int>(op.rows), -1, call.in<std::int32_t>(1), first, order);
  launch(gpu, scatter_kernel<Sums, T>,
         op.grid(gpu, blocks_for(op.rows, scatter_warps), Sums::columns, 8), dim3(scatter_threads),
         0, op.rows, op.columns, call.in<T>(0), first, order, call.out<T>());
}

template <class T>
constexpr Candidate<Scatter> scatter_candidates[] = {
    {.name = [](const Scatter&) -> std::string { return "every block looks at all ids"; },
     .supports = [](const Scatter& op) { return op.count <= most_for_a_block; },
     .expectation =
         [](const Scatter& op, const Card& card) {
           const std::int64_t looks = op.count * (op.rows / scatter_warps + 1);
           return looks <= card.crossovers().embedding_looks ? 2 : 0;
         },
     .prepare =
         [](const Scatter& op, GpuPrepare& prepare) {
           return make_kernel([&gpu = prepare.gpu, op](const Launch& call) {
             with_strips<T>(op, call,
                            [&]<class Sums>() { find_and_scatter<Sums, T>(gpu, op, call); });
           });
         }},
    {.name = [](const Scatter&) -> std::string { return "ids are sorted once"; },
     .supports = [](const Scatter&) { return true; },
     .expectation = [](const Scatter&, const Card&) { return 1; },
     .prepare =
         [](const Scatter& op, GpuPrepare& prepare) {
           prepare.workspace = static_cast<std::size_t>(op.rows + 1 + op.count) * sizeof(int);
           return make_kernel([&gpu = prepare.gpu, op](const Launch& call) {
             with_strips<T>(op, call,
                            [&]<class Sums>() { sort_and_scatter<Sums, T>(gpu, op, call); });
           });
         }},
};

// Not timed: what a trial has for ids are no rows of the table.
template <class T>
KernelPtr scatter(GpuPrepare& prepare) {
  const Scatter op{prepare.out[0].shape[0], prepare.out[0].shape[1],
                   static_cast<int>(prepare.in[1].numel())};
  return expected_kernel<Scatter>(prepare, op, scatter_candidates<T>);
}

constexpr int add_threads = 256, add_warps = add_threads / warp_width;

// sums += rows[order[b], :] for the lanes b of `lanes`, in their order, from column c on.
template <int N, class T>
__device__ void add_lanes(std::uint64_t lanes, const int* order, std::int64_t columns,
                          std::int64_t c, const T* rows, float (&sums)[N]) {
  constexpr int together = 4;  // whose loads are in flight at once
  while (lanes != 0) {
    Pack<T, N> packs[together];
    int n = 0;
#pragma unroll
    for (int k = 0; k < together; ++k)
      if (lanes != 0) {
        const int lane = __ffsll(static_cast<long long>(lanes)) - 1;
        lanes &= lanes - 1;
        packs[k] = *reinterpret_cast<const Pack<T, N>*>(rows + order[lane] * columns + c);
        n = k + 1;
      }
#pragma unroll
    for (int k = 0; k < together; ++k)
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (k < n) sums[j] += load(&packs[k].at[j]);
  }
}

// After sort_kernel. A warp adds to the rows whose ids end in the bits of its bucket: to each, when
// it meets its id for the first time, all that have it. `keys` has room for the ids as they are
// sorted.
template <int N, class T>
__global__ void __launch_bounds__(add_threads)
    add_rows_kernel(int buckets, std::int64_t columns, const int* first, const int* order,
                    const std::int32_t* ids, int* keys, const T* rows, T* table) {
  gpu::begin_kernel();
  const int bucket = static_cast<int>(blockIdx.x) * add_warps + warp_of_thread();
  if (bucket >= buckets) return;
  const int lane = lane_of_thread(), begin = first[bucket], end = first[bucket + 1];
  for (int i = begin + lane; i < end; i += warp_width) keys[i] = ids[order[i]];
  sync_warp();
  // Lanes of those of the warp's width from `at` on that are between `from` and `to` and have it.
  const auto with_key = [&](int key, int at, int from, int to) {
    const int i = at + lane;
    return ballot(i >= from && i < to && keys[i] == key);
  };
  for (int i = begin; i < end; ++i) {
    const int key = keys[i];
    bool is_first = true;
    for (int at = begin; is_first && at < i; at += warp_width)
      is_first = with_key(key, at, begin, i) == 0;
    if (!is_first) continue;
    for (std::int64_t strip = 0; strip < columns; strip += warp_width * N) {
      const std::int64_t c = strip + lane * N;
      T* const to = table + key * columns + c;
      float sums[N] = {};
      if (c < columns) load_pack<N>(to, sums);
      for (int at = i; at < end; at += warp_width) {
        const std::uint64_t lanes = with_key(key, at, i, end);
        if (c < columns) add_lanes(lanes, order + at, columns, c, rows, sums);
      }
      if (c < columns) store_pack<N>(to, sums);
    }
  }
}

template <class T>
KernelPtr add_rows(GpuPrepare& prepare) {
  const std::int64_t columns = prepare.in[0].shape[1];
  const int count = static_cast<int>(prepare.in[1].numel());
  const auto buckets = static_cast<int>(std::bit_ceil(
      std::min(static_cast<unsigned>(count), prepare.gpu.card.crossovers().index_add_warps)));
  prepare.workspace = static_cast<std::size_t>(buckets + 1 + 2 * count) * sizeof(int);
  return make_kernel([&gpu = prepare.gpu, columns, count, buckets](const Launch& call) {
    constexpr int wide = 4;  // so that a warp spans rows of 128
    constexpr std::size_t bytes = wide * sizeof(T);
    const auto* ids = call.in<std::int32_t>(1);
    const T* rows = call.in<T>(2);
    T* table = call.out<T>();
    auto* first = static_cast<int*>(call.workspace);
    auto* order = first + buckets + 1;
    sort(gpu, count, buckets, buckets - 1, ids, first, order);
    const bool packed = columns % wide == 0 && is_aligned(rows, bytes) && is_aligned(table, bytes);
    launch(gpu, packed ? add_rows_kernel<wide, T> : add_rows_kernel<1, T>,
           dim3(blocks_for(buckets, add_warps)), dim3(add_threads), 0, buckets, columns, first,
           order, ids, order + count, rows, table);
  });
}

}  // namespace

KernelPtr Embedding::gpu(GpuPrepare& prepare) const {
  return size_of(prepare.in[0].dtype) == 2 ? gather<std::uint16_t>(prepare)
                                           : gather<std::uint32_t>(prepare);
}

KernelPtr EmbeddingGrad::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return scatter<T>(prepare); });
}

KernelPtr IndexAdd::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype, [&]<class T>() { return add_rows<T>(prepare); });
}

}  // namespace ridge
