#pragma once

// What the kernels of attention share: tiles of rows in shared memory, and the products between
// them that each thread computes a register tile of.
//
// A band of 32 threads is cut into groups of `Lanes`. A group owns R rows of its block's tile,
// 32 / Lanes rows apart, so that the groups of a band read rows whose banks differ; its lanes share
// out the columns. All rows in shared memory are padded by 16 bytes for the same reason. Sums and
// maxima over a row stay within a group, and so within a warp of any vendor.

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ridge/gpu/device/runtime.h"

#if !defined(__HIP__)
#include <cuda_pipeline.h>
#endif

namespace ridge::gpu {

// Rows of heads in device memory: position s (counted through the batch) and head h at element
// s * stride + h * width, `width` elements of it. `vector`: four at a time are aligned.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  int width;
  bool vector;

  __device__ T* at(std::int64_t position, int head) const {
    return data + position * stride + static_cast<std::int64_t>(head) * width;
  }
};

template <class T>
HeadRows<T> head_rows(T* data, std::int64_t stride, std::int64_t width) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % (4 * sizeof(T)) == 0;
  return {data, stride, static_cast<int>(width), aligned && stride % 4 == 0 && width % 4 == 0};
}

template <class T>
HeadRows<const T> constant(const HeadRows<T>& rows) {
  return {rows.data, rows.stride, rows.width, rows.vector};
}

// Adds room for `bytes` to a workspace; where it starts.
inline std::size_t reserve(std::size_t& workspace, std::size_t bytes) {
  const std::size_t offset = workspace;
  workspace += (bytes + 255) / 256 * 256;
  return offset;
}

// Four elements from device to shared memory, or zeros; there after await_copies and a barrier.
template <class T>
__device__ inline void copy_pack(float* to, const T* from, bool zero) {
#if !defined(__HIP__)
  if constexpr (std::is_same_v<T, float>)
    return __pipeline_memcpy_async(to, from, 16, zero ? 16 : 0);
#endif
  float x[4] = {0, 0, 0, 0};
  if (!zero) load_pack(from, x);
  store_pack(to, x);
}

__device__ inline void await_copies() {
#if !defined(__HIP__)
  __pipeline_commit();
  __pipeline_wait_prior(0);
#endif
}

// Columns c .. c + 3 of a row, 0 beyond its width.
template <class T>
__device__ inline void load_columns(const T* row, int c, int width, bool vector, float (&x)[4]) {
  if (vector && c < width) return load_pack(row + c, x);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = c + i < width ? load(row + c + i) : 0.0f;
}

template <class T>
__device__ inline void store_columns(T* row, int c, int width, bool vector, const float (&x)[4]) {
  if (vector) {
    if (c < width) store_pack(row + c, x);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (c + i < width) store(row + c + i, x[i]);
}

// Starts to copy a tile of Rows rows of one head to shared memory; rows from `valid` on and columns
// beyond the head's are 0. All threads of the block take part, each in one pack of columns.
template <int Rows, int Columns, int Stride, int Threads, class T>
__device__ inline void load_tile(float* tile, const HeadRows<const T>& source,
                                 std::int64_t position, int head, int valid) {
  constexpr int packs = Columns / 4, step = Threads / packs;
  static_assert(Threads % packs == 0);
  const int c = static_cast<int>(threadIdx.x) % packs * 4;
  const int first = static_cast<int>(threadIdx.x) / packs;
  const T* start = source.at(position, head);
  const T* row = start + first * source.stride + c;
  float* to = tile + first * Stride + c;
  if (c >= source.width) valid = 0;
  if (source.vector) {
#pragma unroll
    for (int r = 0; r < Rows; r += step) {
      if (Rows % step == 0 || first + r < Rows)
        copy_pack(to + r * Stride, first + r < valid ? row : start, first + r >= valid);
      row += step * source.stride;
    }
    return;
  }
#pragma unroll 1
  for (int r = first; r < Rows; r += step, row += step * source.stride, to += step * Stride) {
    float x[4] = {0, 0, 0, 0};
    if (r < valid) load_columns(row - c, c, source.width, source.vector, x);
    store_pack(to, x);
  }
}

// Multiplies a tile in shared memory by a factor; each thread what it loaded itself.
template <int Rows, int Columns, int Stride, int Threads>
__device__ inline void scale_tile(float* tile, float factor) {
  constexpr int packs = Columns / 4, step = Threads / packs;
  const int c = static_cast<int>(threadIdx.x) % packs * 4;
#pragma unroll 4
  for (int r = static_cast<int>(threadIdx.x) / packs; r < Rows; r += step) {
    float x[4];
    load_pack(tile + r * Stride + c, x);
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] *= factor;
    store_pack(tile + r * Stride + c, x);
  }
}

// s[r][j] += sum_c a[r * StepA][c] * b[j * StepB][c], the steps and strides in floats.
template <int Columns, int StepA, int StepB, int N, int R, int M>
__device__ inline void add_rows_by_rows(const float* a, const float* b, float (&s)[R][M]) {
#pragma unroll 2
  for (int c = 0; c < Columns; c += 4) {
    float x[R][4];
#pragma unroll
    for (int r = 0; r < R; ++r) load_pack(a + r * StepA + c, x[r]);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float y[4];
      load_pack(b + j * StepB + c, y);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int r = 0; r < R; ++r) s[r][j] = fmaf(x[r][e], y[e], s[r][j]);
    }
  }
}

// o[r][4 n + e] += sum_j p[r * StepP + j] * b[j * StrideB + n * StepB + e] for j < count, which is
// a multiple of 4.
template <int StepP, int StrideB, int StepB, int R, int C>
__device__ inline void add_rows_by_columns(const float* p, const float* b, int count,
                                           float (&o)[R][C]) {
#pragma unroll 2
  for (int j = 0; j < count; j += 4) {
    float x[R][4];
#pragma unroll
    for (int r = 0; r < R; ++r) load_pack(p + r * StepP + j, x[r]);
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int n = 0; n < C / 4; ++n) {
        float y[4];
        load_pack(b + (j + e) * StrideB + n * StepB, y);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int r = 0; r < R; ++r) o[r][4 * n + i] = fmaf(x[r][e], y[i], o[r][4 * n + i]);
      }
  }
}

// o[r][4 n + e] += sum_j p[j * StrideP + r] * b[j * StrideB + n * StepB + e] for j < Count.
template <int Count, int StrideP, int StrideB, int StepB, int R, int C>
__device__ inline void add_columns_by_columns(const float* p, const float* b, float (&o)[R][C]) {
#pragma unroll 4
  for (int j = 0; j < Count; ++j) {
    float x[R];
#pragma unroll
    for (int r = 0; r < R; r += 4)
      load_pack(p + j * StrideP + r, *reinterpret_cast<float(*)[4]>(&x[r]));
#pragma unroll
    for (int n = 0; n < C / 4; ++n) {
      float y[4];
      load_pack(b + j * StrideB + n * StepB, y);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int r = 0; r < R; ++r) o[r][4 * n + i] = fmaf(x[r], y[i], o[r][4 * n + i]);
    }
  }
}

// How a block's threads share a tile of `Rows` rows held against tiles of `Others` rows of the
// other kind, all of `Columns` columns: head_dim, padded. A thread has RowsEach rows; of each, the
// scores lane + lanes * j and the columns 4 * lane + 4 * lanes * n + (0, 1, 2, 3). The compiler
// leaves room for at least `Blocks` blocks on a multiprocessor.
template <int Columns, int Rows, int Others, int Lanes, int RowsEach, int Blocks>
struct AttentionTile {
  static constexpr int columns = Columns, rows = Rows, others = Others, lanes = Lanes;
  static constexpr int rows_each = RowsEach, blocks = Blocks;
  static constexpr int others_each = others / lanes, columns_each = columns / lanes;
  static constexpr int threads = rows / rows_each * lanes;
  static constexpr int groups = 32 / lanes, band_rows = groups * rows_each;  // of a band
  // Distances in shared memory: of rows, of rows of scores; of a thread's rows, of its rows'
  // scores; and of the rows of the other kind that it meets.
  static constexpr int stride = columns + 4, scores = others + lanes;
  static constexpr int row_step = groups * stride, score_step = groups * scores;
  static constexpr int other_step = lanes * stride;
  static_assert(columns_each % 4 == 0 && threads % 64 == 0 && 32 % lanes == 0);

  int lane, group, band;

  __device__ AttentionTile() {
    const int t = static_cast<int>(threadIdx.x);
    lane = t % lanes;
    group = t % 32 / lanes;
    band = t / 32;
  }
  __device__ int row(int r) const { return band * band_rows + r * groups + group; }

  template <class Combine>
  __device__ static float reduce(float x) {
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask /= 2) x = Combine()(x, shuffle_xor(x, mask));
    return x;
  }
};

// Where the vendor's blocks have no more than 64 KiB of shared memory, the smaller tiles.
#if defined(__HIP__)
template <class Small, class Large>
using TileFor = Small;
#else
template <class Small, class Large>
using TileFor = Large;
#endif

template <class ForwardTile, class BackwardTile>
struct TilePair {
  using Forward = ForwardTile;
  using Backward = BackwardTile;
};

// The tiles of heads of up to `Columns` columns.
template <int Columns>
struct AttentionTiles;
template <>
struct AttentionTiles<32>
    : TilePair<AttentionTile<32, 64, 64, 8, 4, 3>,
               TileFor<AttentionTile<32, 32, 32, 8, 4, 1>, AttentionTile<32, 64, 64, 8, 4, 2>>> {};
template <>
struct AttentionTiles<64>
    : TilePair<TileFor<AttentionTile<64, 32, 32, 8, 4, 1>, AttentionTile<64, 64, 64, 16, 8, 3>>,
               TileFor<AttentionTile<64, 32, 32, 8, 4, 1>, AttentionTile<64, 64, 64, 16, 8, 2>>> {};
template <>
struct AttentionTiles<128>
    : TilePair<
          TileFor<AttentionTile<128, 32, 32, 8, 4, 1>, AttentionTile<128, 128, 64, 16, 8, 1>>,
          TileFor<AttentionTile<128, 32, 16, 16, 8, 1>, AttentionTile<128, 64, 64, 16, 4, 1>>> {};
template <>
struct AttentionTiles<256>
    : TilePair<TileFor<AttentionTile<256, 16, 16, 16, 4, 1>, AttentionTile<256, 64, 32, 16, 4, 1>>,
               AttentionTile<256, 32, 32, 32, 4, 1>> {};  // backward more than small blocks have

// Calls function.template operator()<Columns>() for the narrowest tiles that hold a head. Wider
// heads are refused before.
template <class F>
auto dispatch_columns(std::int64_t head_dim, const F& function) {
  if (head_dim <= 32) return function.template operator()<32>();
  if (head_dim <= 64) return function.template operator()<64>();
  if (head_dim <= 128) return function.template operator()<128>();
  return function.template operator()<256>();
}

// DeviceError if no tiles hold the head, or not enough shared memory holds the tiles.
void check_head_dim(std::string_view op, std::int64_t head_dim, std::size_t shared_bytes,
                    const Context& gpu);

}  // namespace ridge::gpu
