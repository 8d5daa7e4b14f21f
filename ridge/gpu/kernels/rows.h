#pragma once

// Rows of a matrix, each shared by a group of threads that holds it in registers between a
// reduction and what needs its result: by a warp, whose reductions need no barrier, or by a block,
// where a row is too long for the registers of a warp. What exceeds the registers of a block is
// read again.

#include <algorithm>
#include <cstdint>

#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/kernels/elementwise.h"

namespace ridge::gpu {

// A group knows a thread's rank in it and its size in threads; its index in the block, and how many
// groups the block has.
//
// A warp, or a part of one for short rows.
template <int lanes>
struct LaneThreads {
  static constexpr bool is_block = false;
  static constexpr int max_threads = 4 * warp_width;  // of a block of such groups
  __device__ static int rank() { return static_cast<int>(threadIdx.x) % lanes; }
  __device__ static int size() { return lanes; }
  __device__ static int index() { return static_cast<int>(threadIdx.x) / lanes; }
  __device__ static int count() { return static_cast<int>(blockDim.x) / lanes; }
  // All lanes of a warp must call it.
  template <class Combine, class T>
  __device__ static T reduce(T x) {
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask /= 2) x = Combine()(x, shuffle_xor(x, mask));
    return x;
  }
};

struct WarpThreads : LaneThreads<warp_width> {};

struct BlockThreads {
  static constexpr bool is_block = true;
  static constexpr int max_threads = 1024;
  __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  __device__ static int size() { return static_cast<int>(blockDim.x); }
  __device__ static int index() { return 0; }
  __device__ static int count() { return 1; }
  template <class Combine, class T>
  __device__ static T reduce(T x) {
    return reduce_block<Combine>(x);
  }
};

// The group's index in the grid, and the number of groups there: the first row and the step of a
// group that takes several.
template <class Threads>
__device__ std::int64_t first_row() {
  return static_cast<std::int64_t>(blockIdx.x) * Threads::count() + Threads::index();
}
template <class Threads>
__device__ std::int64_t row_step() {
  return static_cast<std::int64_t>(gridDim.x) * Threads::count();
}

// N neighbors as they lie in memory, so that two of 16 bits share a register until they are
// needed.
template <class T, int N>
struct alignas(sizeof(T) * N) Held {
  T at[N];
  __device__ float operator[](int i) const { return load(&at[i]); }
};
template <class T, int N>
requires(sizeof(T) == 2 && N % 2 == 0) struct alignas(2 * N) Held<T, N> {
  std::uint32_t words[N / 2];
  __device__ float operator[](int i) const { return half_of_word<T>(words[i / 2], i % 2); }
};

// The columns of a row that one thread of the group holds: K packs of N neighbors, the group's
// width apart, so that the group reads without gaps.
template <class Threads, int N, int K>
struct ColumnsOf {
  // Columns that the group holds at once.
  __device__ static int held() { return Threads::size() * N * K; }

  // Those of `columns` that are held at once, from 0 on.
  __device__ static int clamp(std::int64_t columns) {
    return static_cast<int>(min(columns, static_cast<std::int64_t>(held())));
  }

  // f(k, c) for every k < K whose pack begins at a column c < columns.
  template <class F>
  __device__ static void each(int columns, const F& f) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int c = (k * Threads::size() + Threads::rank()) * N;
      if (c < columns) f(k, c);
    }
  }

  // f(k, i) for element i of every pack k, as far as its column is below `columns`; `whole` says
  // that these are a multiple of N.
  template <bool whole, class F>
  __device__ static void each_element(int columns, const F& f) {
    each(columns, [&](int k, int c) {
      if (whole || c + N <= columns) {
#pragma unroll
        for (int i = 0; i < N; ++i) f(k, i);
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i)
          if (c + i < columns) f(k, i);
      }
    });
  }

  // The first `columns` elements of a row; whole packs are read.
  template <class T>
  __device__ static void load_row(const T* row, int columns, Held<T, N> (&packs)[K]) {
    each(columns, [&](int k, int c) { packs[k] = *reinterpret_cast<const Held<T, N>*>(row + c); });
  }
};

// How a kernel's groups are launched.
struct ThreadsLaunch {
  int threads;         // of a block
  int rows_per_block;  // that are worked on at once

  // Enough blocks that each group takes one row.
  dim3 grid(std::int64_t rows) const { return dim3(blocks_for(rows, rows_per_block)); }
  dim3 block() const { return dim3(static_cast<unsigned>(threads)); }
};

// Calls f.template operator()<Threads, K>(ThreadsLaunch) with the smallest group that holds
// `columns` of `operands` operands in packs of N, at most `elements` of each in a thread; or with
// the largest blocks if none does. Single elements are for odd sizes and addresses only, so they
// get fewer variants.
template <int N, int operands, int elements = 64, class F>
void dispatch_threads(std::int64_t columns, const F& f) {
  constexpr int most = BlockThreads::max_threads;
  constexpr ThreadsLaunch warps{WarpThreads::max_threads, WarpThreads::max_threads / warp_width};
  const std::int64_t packs = (columns + N - 1) / N;
  auto block = [&](int k) {
    const std::int64_t threads = ((packs + k - 1) / k + warp_width - 1) / warp_width * warp_width;
    return ThreadsLaunch{static_cast<int>(std::min<std::int64_t>(threads, most)), 1};
  };
  if constexpr (N > 1) {
    if (packs <= 2 * warp_width) return f.template operator()<WarpThreads, 2>(warps);
    if (packs <= 4 * warp_width) return f.template operator()<WarpThreads, 4>(warps);
  }
  if constexpr (8 * N <= elements) {
    if (packs <= 8 * warp_width) return f.template operator()<WarpThreads, 8>(warps);
    if constexpr (N == 1 || operands == 1)
      if (packs > 4 * most) return f.template operator()<BlockThreads, 8>(block(8));
  }
  return f.template operator()<BlockThreads, 4>(block(4));
}

// Whether all rows can be read and written in packs of N.
template <int N, class... T>
bool rows_are_packable(std::int64_t columns, const T*... operands) {
  return columns % N == 0 && (is_aligned(operands, N * sizeof(T)) && ...);
}

// Calls f.template operator()<N>() for packs of N if `packed`, and for single elements otherwise.
template <int N, class F>
void dispatch_packed(bool packed, const F& f) {
  if (packed)
    f.template operator()<N>();
  else
    f.template operator()<1>();
}

}  // namespace ridge::gpu
