// What surrounds the kernel that sums dQ over key tiles in a float workspace. The workspace holds,
// for each tile of summed_queries(head_dim) rows of a head, the part of each warpgroup, as its
// threads held it: accumulator i of thread t at 512 (i / 4) + 4 t + i % 4.

#include <cmath>

#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/sm90/attention/flash_backward.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/launch.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int consumers = 2;  // warpgroups

template <class T>
struct PrepareWork {
  std::int64_t rows;  // batch * n_heads * padded_seq
  int seq, padded_seq, n_heads;
  const T* y;
  const T* dy;
  const float* lse;
  float2* stats;
  float4* dq;
};

// The row statistics, and zeros for the sum of dQ. Eight columns a thread.
template <class T, int HeadDim>
__global__ void __launch_bounds__(256) prepare_kernel(const PrepareWork<T> work) {
  constexpr int row_threads = HeadDim / 8;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t row = thread / row_threads;
  if (row >= work.rows) return;
  const int position = static_cast<int>(row % work.padded_seq);
  const std::int64_t head = row / work.padded_seq;
  float delta = 0;
  if (position < work.seq) {
    const std::int64_t at = (head / work.n_heads * work.seq + position) * work.n_heads * HeadDim +
                            head % work.n_heads * HeadDim + thread % row_threads * 8;
    const uint4 a = *reinterpret_cast<const uint4*>(work.y + at);
    const uint4 b = *reinterpret_cast<const uint4*>(work.dy + at);
    const std::uint32_t y[] = {a.x, a.y, a.z, a.w}, dy[] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      delta = fmaf(half_of_word<T>(y[i], 1), half_of_word<T>(dy[i], 1), delta);
      delta = fmaf(half_of_word<T>(y[i], 0), half_of_word<T>(dy[i], 0), delta);
    }
  }
#pragma unroll
  for (int lanes = row_threads / 2; lanes > 0; lanes /= 2)
    delta += __shfl_xor_sync(0xffffffff, delta, lanes);
  work.dq[2 * thread] = work.dq[2 * thread + 1] = float4{0, 0, 0, 0};
  if (thread % row_threads == 0) {
    const bool inside = position < work.seq;
    work.stats[row] =
        float2{inside ? work.lse[head * work.seq + position] * log2e : INFINITY, delta};
  }
}

template <class T>
struct FinishWork {
  std::int64_t threads;
  int seq, padded_seq, n_heads;
  float scale;
  const float4* dq;
  const float2* rotation;
  T* out;
  std::int64_t stride;
};

// dq = scale times the workspace, rounded. A thread gathers what four neighboring threads of the
// backward kernel held: 8 columns of two rows.
template <class T, int HeadDim>
__global__ void __launch_bounds__(256) finish_kernel(const FinishWork<T> work) {
  constexpr int queries = summed_queries(HeadDim);
  constexpr bool split_columns = queries == warpgroup_rows;
  constexpr int dq_columns = split_columns ? HeadDim / 2 : HeadDim;
  constexpr int groups = dq_columns / 8;  // of 8 columns, in one warpgroup's part
  constexpr int tile_threads = groups * consumers * warpgroup_threads / 4;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= work.threads) return;
  const int within = static_cast<int>(thread % tile_threads);
  const std::int64_t tile = thread / tile_threads;
  const int group = within % groups, quad = within / groups % 32, part = within / groups / 32;
  const float4* from = work.dq + (tile * consumers + part) * (groups * warpgroup_threads) +
                       group * warpgroup_threads + quad * 4;
  wait_for_previous();
  float upper[8], lower[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 x = from[i];
    upper[2 * i] = x.x * work.scale;
    upper[2 * i + 1] = x.y * work.scale;
    lower[2 * i] = x.z * work.scale;
    lower[2 * i + 1] = x.w * work.scale;
  }
  const int head_tiles = work.padded_seq / queries;
  const std::int64_t head = tile / head_tiles;
  const int row = static_cast<int>(tile % head_tiles) * queries +
                  (split_columns ? 0 : part * warpgroup_rows) + quad / 8 * 16 + quad % 8;
  const int column = (split_columns ? part * dq_columns : 0) + group * 8;
  const auto write = [&](float(&x)[8], int position) {
    if (position >= work.seq) return;
    if (work.rotation != nullptr) {
      const float2* angles = work.rotation + (position * HeadDim + column) / 2;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = fmaf(a, angles[i].x, b * angles[i].y);
        x[2 * i + 1] = fmaf(b, angles[i].x, -a * angles[i].y);
      }
    }
    *reinterpret_cast<uint4*>(work.out + (head / work.n_heads * work.seq + position) * work.stride +
                              head % work.n_heads * HeadDim + column) =
        uint4{ptx::pack<T>(x[0], x[1]), ptx::pack<T>(x[2], x[3]), ptx::pack<T>(x[4], x[5]),
              ptx::pack<T>(x[6], x[7])};
  };
  write(upper, row);
  write(lower, row + 8);
}

template <class T, int HeadDim>
void prepare(const BackwardCall& call, float2* stats, float* dq) {
  PrepareWork<T> work{};
  work.seq = static_cast<int>(call.shape.seq);
  work.padded_seq = static_cast<int>(padded_seq(call.shape));
  work.n_heads = static_cast<int>(call.shape.n_heads);
  work.rows = call.shape.batch * call.shape.n_heads * work.padded_seq;
  work.y = static_cast<const T*>(call.y);
  work.dy = static_cast<const T*>(call.dy);
  work.lse = call.lse;
  work.stats = stats;
  work.dq = reinterpret_cast<float4*>(dq);
  const std::int64_t threads = work.rows * (HeadDim / 8);
  prepare_kernel<T, HeadDim>
      <<<static_cast<unsigned>((threads + 255) / 256), 256, 0, call.stream>>>(work);
  check(last_error(), "flash attention, backward: row sums");
}

template <class T, int HeadDim>
void finish(const BackwardCall& call, const float* dq) {
  FinishWork<T> work{};
  work.seq = static_cast<int>(call.shape.seq);
  work.padded_seq = static_cast<int>(padded_seq(call.shape));
  work.n_heads = static_cast<int>(call.shape.n_heads);
  work.threads = call.shape.batch * call.shape.n_heads * work.padded_seq * HeadDim / 16;
  work.scale = call.shape.scale;
  work.dq = reinterpret_cast<const float4*>(dq);
  work.rotation = reinterpret_cast<const float2*>(call.gradients.rotation);
  work.out = static_cast<T*>(call.gradients.dq);
  work.stride = call.gradients.dq_stride;
  launch_early(finish_kernel<T, HeadDim>, dim3(blocks_for(work.threads, 256)), 256, 0, call.stream,
               work);
  check(last_error(), "flash attention, backward: dq");
}

}  // namespace

void prepare_sum(const BackwardCall& call, float2* stats, float* dq) {
  dispatch_16_bit(call.shape.dtype, [&]<class T>() {
    if (call.shape.head_dim == 128)
      prepare<T, 128>(call, stats, dq);
    else if (call.shape.head_dim == 64)
      prepare<T, 64>(call, stats, dq);
    else
      prepare<T, 32>(call, stats, dq);
  });
}

void finish_sum(const BackwardCall& call, const float* dq) {
  dispatch_16_bit(call.shape.dtype, [&]<class T>() {
    if (call.shape.head_dim == 128)
      finish<T, 128>(call, dq);
    else if (call.shape.head_dim == 64)
      finish<T, 64>(call, dq);
    else
      finish<T, 32>(call, dq);
  });
}

}  // namespace ridge::gpu::sm90
