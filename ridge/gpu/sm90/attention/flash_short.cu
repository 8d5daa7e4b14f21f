// Flash attention of sequences that are one tile long, of both queries and keys: forward, and the
// whole backward pass in one kernel. There is nothing to overlap with but other heads, so a block
// is simply its two warpgroups, of 64 rows each, and many blocks share a multiprocessor's time.
// The rotary embedding is done here as well, in shared memory, where it costs no pass of its own.
//
// Forward, one query head a block:
//   S = Q K^T;  P = exp(scale S - rowmax);  y = P V / rowsum(P)
// Backward, one query head a block, or a few one after another, with keys as rows:
//   S^T = K Q^T;  P^T = exp(scale S^T - lse);  dP^T = V dY^T;  dS^T = P^T (dP^T - rowsum(dY Y))
//   dV += P^T dY;  dK += dS^T Q;  dQ = dS K
// All keys being here, dQ is complete as it is: no sum through memory, and no second computation
// of the scores. The blocks of a key head's queries are a cluster, and add up their dK and dV.

#include <cmath>

#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/sm90/attention/flash_short.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/attention/query_pipeline.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int rows = flash_tile_rows;
constexpr int warpgroups = rows / warpgroup_rows;
constexpr int threads = warpgroups * warpgroup_threads;

struct ShortWork {
  int seq, n_heads, n_kv_heads;
  float scale, scale_log2;
  const float2 *rotation, *back_rotation;  // [seq, head_dim / 2], or null
};

template <class T>
struct ShortForward {
  ShortWork work;
  CUtensorMap q, k, v;
  T* y;        // [batch, seq, n_heads * head_dim]
  float* lse;  // [batch, n_heads, seq]
};

template <class T>
struct ShortBackward {
  ShortWork work;
  CUtensorMap q, k, v, y, dy;
  const float* lse;
  T *dq, *dk, *dv;
  std::int64_t dq_stride, dk_stride, dv_stride;
};

// Rotates pairs of columns (2i, 2i + 1) of tiles by the angles of their rows. A thread loads the
// angles of the 16-byte chunks that are its own in every tile.
template <class T, int HeadDim>
class TileRotation {
  using Rows = Tile<T, rows, HeadDim>;
  static constexpr int row_chunks = HeadDim / 8;
  static constexpr int own_chunks = rows * row_chunks / threads;

 public:
  __device__ TileRotation(const float2* table, int seq) : present_(table != nullptr), seq_(seq) {
    if (!present_) return;
#pragma unroll
    for (int i = 0; i < own_chunks; ++i) {
      if (row(i) >= seq) continue;
      const auto* angles = reinterpret_cast<const float4*>(table + row(i) * (HeadDim / 2)) +
                           static_cast<int>(threadIdx.x) % row_chunks * 2;
      angles_[i][0] = angles[0];
      angles_[i][1] = angles[1];
    }
  }

  __device__ void operator()(std::uint32_t tile) const {
    if (!present_) return;
#pragma unroll
    for (int i = 0; i < own_chunks; ++i) {
      if (row(i) >= seq_) continue;
      const std::uint32_t at =
          Rows::chunk(tile, row(i), static_cast<int>(threadIdx.x) % row_chunks);
      const uint4 x = ptx::load_chunk(at);
      const float4 a = angles_[i][0], b = angles_[i][1];
      ptx::store_chunk(at, uint4{rotate(x.x, a.x, a.y), rotate(x.y, a.z, a.w),
                                 rotate(x.z, b.x, b.y), rotate(x.w, b.z, b.w)});
    }
  }

 private:
  __device__ static int row(int i) {
    return i * (threads / row_chunks) + static_cast<int>(threadIdx.x) / row_chunks;
  }
  __device__ static std::uint32_t rotate(std::uint32_t pair, float cos, float sin) {
    const float x = half_of_word<T>(pair, 0), y = half_of_word<T>(pair, 1);
    return ptx::pack<T>(fmaf(x, cos, -y * sin), fmaf(x, sin, y * cos));
  }

  bool present_;
  int seq_;
  float4 angles_[own_chunks][2];
};

// This thread's share of 64 x (2 Count) accumulators, rounded, to rows of memory that are `stride`
// elements apart and begin at `to`; `row` is the position of its first row.
template <class T, int Count>
__device__ void write_rows(const float (&d)[Count], T* to, std::int64_t stride, int row, int seq,
                           float upper, float lower) {
  const float factor[2] = {upper, lower};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= seq) return;
    auto* const words = reinterpret_cast<std::uint32_t*>(to + (row + 8 * r) * stride);
#pragma unroll
    for (int i = 2 * r; i < Count; i += 4)
      words[(i / 4 * 8 + first_column()) / 2] =
          ptx::pack<T>(d[i] * factor[r], d[i + 1] * factor[r]);
  }
}

__device__ int warpgroup_index() {
  return __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
}

// What threads wrote to shared memory is seen by the products after it.
__device__ void sync_for_products() {
  ptx::fence_shared_for_async();
  __syncthreads();
}

template <class T, int HeadDim>
struct ShortForwardShared {
  using Rows = Tile<T, rows, HeadDim>;
  alignas(1024) unsigned char q[Rows::bytes];
  alignas(1024) unsigned char k[Rows::bytes];
  alignas(1024) unsigned char v[Rows::bytes];
  std::uint64_t full;
};

template <class T, int HeadDim, bool Causal>
__global__ void __launch_bounds__(threads)
    short_forward_kernel(const __grid_constant__ ShortForward<T> call) {
  extern __shared__ __align__(1024) unsigned char memory[];
  using Rows = Tile<T, rows, HeadDim>;
  auto& shared = *reinterpret_cast<ShortForwardShared<T, HeadDim>*>(memory);
  const ShortWork& work = call.work;
  const int head = static_cast<int>(blockIdx.x), batch = static_cast<int>(blockIdx.y);
  if (threadIdx.x == 0) {
    ptx::barrier_init(&shared.full, 1);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  if (threadIdx.x == 0) {
    const int kv_head = head / (work.n_heads / work.n_kv_heads);
    ptx::barrier_arrive_expect(&shared.full, 3 * Rows::bytes);
    load_tile<Rows>(shared.q, &call.q, &shared.full, 0, head, batch);
    load_tile<Rows>(shared.k, &call.k, &shared.full, 0, kv_head, batch);
    load_tile<Rows>(shared.v, &call.v, &shared.full, 0, kv_head, batch);
  }
  const TileRotation<T, HeadDim> rotate(work.rotation, work.seq);
  const std::uint32_t q = ptx::shared_address(shared.q), k = ptx::shared_address(shared.k),
                      v = ptx::shared_address(shared.v);
  ptx::barrier_wait(&shared.full, 0);
  rotate(q);
  rotate(k);
  sync_for_products();

  const int top = warpgroup_index() * warpgroup_rows, row = top + first_row();
  float s[rows / 2], out[HeadDim / 2];
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < HeadDim / 16; ++step)
    ptx::wgmma<T, rows, false, false>(s, Rows::along_columns(q, step, top),
                                      Rows::along_columns(k, step), step != 0);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(s);

  mask_scores<Causal>(s, row, first_column(), work.seq);
  float shift[2], factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top_score = s[2 * r];
#pragma unroll
    for (int i = 2 * r; i < rows / 2; i += 4) top_score = fmaxf(top_score, fmaxf(s[i], s[i + 1]));
    shift[r] = row_max(top_score) * work.scale_log2;  // key 0 is never masked
    float sum = 0;
#pragma unroll
    for (int i = 2 * r; i < rows / 2; i += 4)
#pragma unroll
      for (int j = i; j < i + 2; ++j) {
        s[j] = ptx::exp2(fmaf(s[j], work.scale_log2, -shift[r]));
        sum += s[j];
      }
    sum = row_sum(sum);
    factor[r] = 1 / sum;
    if (threadIdx.x % 4 == 0 && row + 8 * r < work.seq)
      call.lse[(static_cast<std::int64_t>(batch) * work.n_heads + head) * work.seq + row + 8 * r] =
          (shift[r] + log2f(sum)) * ln2;
  }
  std::uint32_t p[rows / 16][4];
#pragma unroll
  for (int step = 0; step < rows / 16; ++step) pack_step<T>(p[step], s, step);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < rows / 16; ++step)
    ptx::wgmma<T, HeadDim, true>(out, p[step], Rows::along_rows(v, step), step != 0);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(out);
  const std::int64_t stride = static_cast<std::int64_t>(work.n_heads) * HeadDim;
  write_rows(out, call.y + batch * work.seq * stride + head * HeadDim, stride, row, work.seq,
             factor[0], factor[1]);
}

template <class T, int HeadDim>
struct ShortBackwardShared {
  using Rows = Tile<T, rows, HeadDim>;
  alignas(1024) unsigned char k[Rows::bytes];
  alignas(1024) unsigned char v[Rows::bytes];
  alignas(1024) unsigned char q[2][Rows::bytes];
  alignas(1024) unsigned char dy[2][Rows::bytes];
  alignas(1024) unsigned char y[2][Rows::bytes];
  alignas(1024) unsigned char ds[Tile<T, rows, rows>::bytes];  // dS^T
  alignas(16) float2 stats[rows];  // of a query: lse log2(e), rowsum(dY Y)
  std::uint64_t keys_full, rows_full[2];
};

// One warpgroup: 64 keys, and of dQ 64 queries.
template <class T, int HeadDim, bool Causal>
class ShortKeys {
  using Rows = Tile<T, rows, HeadDim>;
  using Scores = Tile<T, rows, rows>;
  using Shared = ShortBackwardShared<T, HeadDim>;

 public:
  __device__ ShortKeys(Shared& shared, const ShortBackward<T>& call)
      : shared_(shared), call_(call), first_(warpgroup_index() * warpgroup_rows) {}

  // The share of a query head, whose tiles are in `stage` and whose statistics are there as well.
  __device__ void add_head(int stage, int head, int batch, bool accumulate) {
    const std::uint32_t k = ptx::shared_address(shared_.k), v = ptx::shared_address(shared_.v),
                        q = ptx::shared_address(shared_.q[stage]),
                        dy = ptx::shared_address(shared_.dy[stage]);
    float s[rows / 2], dp[rows / 2];
    issue_transposed(s, k, q);
    issue_transposed(dp, v, dy);
    ptx::wgmma_wait<1>();
    ptx::pin(s);
    const auto* stats = reinterpret_cast<const float4*>(shared_.stats) + threadIdx.x % 4;
    to_probabilities(s, stats);
    std::uint32_t p[rows / 16][4], ds[rows / 16][4];
#pragma unroll
    for (int step = 0; step < rows / 16; ++step) pack_step<T>(p[step], s, step);
    issue_gradient(dv_, p, dy, accumulate);
    ptx::wgmma_wait<1>();
    ptx::pin(dp);
#pragma unroll
    for (int i = 0; i < rows / 2; ++i) {
      const float4 pair = stats[i / 4 * 4];
      dp[i] = s[i] * (dp[i] - (i % 2 == 0 ? pair.y : pair.w));
    }
#pragma unroll
    for (int step = 0; step < rows / 16; ++step) pack_step<T>(ds[step], dp, step);
    issue_gradient(dk_, ds, q, accumulate);
    exchange(ds);
    float dq[HeadDim / 2];
    issue_dq(dq, k);
    ptx::wgmma_wait<0>();
    ptx::pin(dq);
    ptx::pin(dk_);
    ptx::pin(dv_);
    write(dq, call_.dq, call_.dq_stride, head, batch, true);
  }

  // Writes dK and dV, the sums over the blocks of the cluster in the order of their ranks.
  __device__ void finish(int kv_head, int batch, int rank, int blocks) {
    if (blocks > 1) {
      __syncthreads();  // nobody reads the tiles any more
      leave(dk_, 0);
      leave(dv_, HeadDim / 2);
      ptx::cluster_sync();
    }
    if (rank == 0) {
      if (blocks > 1) gather(dk_, 0, rank, blocks);
      write(dk_, call_.dk, call_.dk_stride, kv_head, batch, true);
    }
    if (rank == blocks - 1) {
      if (blocks > 1) gather(dv_, HeadDim / 2, rank, blocks);
      write(dv_, call_.dv, call_.dv_stride, kv_head, batch, false);
    }
    if (blocks > 1) ptx::cluster_sync();  // whose memory is read stays until then
  }

 private:
  // Accumulators in shared memory, in the place of the tiles: [which][thread].
  static_assert(sizeof(Shared::q) + sizeof(Shared::dy) >= HeadDim * threads * sizeof(float));
  __device__ float* parts() const { return reinterpret_cast<float*>(shared_.q) + threadIdx.x; }
  __device__ void leave(const float (&d)[HeadDim / 2], int first) const {
#pragma unroll
    for (int i = 0; i < HeadDim / 2; ++i) parts()[(first + i) * threads] = d[i];
  }
  __device__ void gather(float (&d)[HeadDim / 2], int first, int own, int blocks) const {
    const std::uint32_t at = ptx::shared_address(parts() + first * threads);
    float sum[HeadDim / 2] = {};
    for (int rank = 0; rank < blocks; ++rank)
#pragma unroll
      for (int i = 0; i < HeadDim / 2; ++i)
        sum[i] += rank == own ? d[i] : ptx::load_of_block(at + i * threads * sizeof(float), rank);
#pragma unroll
    for (int i = 0; i < HeadDim / 2; ++i) d[i] = sum[i];
  }

  // d = this warpgroup's rows of a tile of keys times columns^T.
  __device__ void issue_transposed(float (&d)[rows / 2], std::uint32_t keys,
                                   std::uint32_t columns) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < HeadDim / 16; ++step)
      ptx::wgmma<T, rows, false, false>(d, Rows::along_columns(keys, step, first_),
                                        Rows::along_columns(columns, step), step != 0);
    ptx::wgmma_commit();
  }

  // d (+)= a times a tile of rows of queries.
  __device__ void issue_gradient(float (&d)[HeadDim / 2], const std::uint32_t (&a)[rows / 16][4],
                                 std::uint32_t tile, bool accumulate) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < rows / 16; ++step)
      ptx::wgmma<T, HeadDim, true>(d, a[step], Rows::along_rows(tile, step),
                                   step > 0 || accumulate);
    ptx::wgmma_commit();
  }

  __device__ void issue_dq(float (&dq)[HeadDim / 2], std::uint32_t keys) const {
    const std::uint32_t ds = ptx::shared_address(shared_.ds);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < rows / 16; ++step)
      ptx::wgmma<T, HeadDim, true, true>(dq, Scores::along_rows(ds, step, first_),
                                         Rows::along_rows(keys, step), step != 0);
    ptx::wgmma_commit();
  }

  // P^T from S^T; of keys after the query or past the end it is zero. stats[i] is (lse, delta) of
  // the queries of elements i and i + 1, which are those of i + 2 and i + 3.
  __device__ void to_probabilities(float (&s)[rows / 2], const float4* stats) const {
    const int key = first_ + first_row(), seq = call_.work.seq;
#pragma unroll
    for (int i = 0; i < rows / 2; ++i) {
      const float4 pair = stats[i / 4 * 4];
      const int query = i / 4 * 8 + first_column() + i % 2, row = key + i / 2 % 2 * 8;
      const float p = ptx::exp2(fmaf(s[i], call_.work.scale_log2, -(i % 2 == 0 ? pair.x : pair.z)));
      s[i] = row >= seq || (Causal && row > query) ? 0 : p;
    }
  }

  // dS^T of this warpgroup's keys goes to shared memory; returns when the others' is there too.
  __device__ void exchange(const std::uint32_t (&ds)[rows / 16][4]) const {
    const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
    const std::uint32_t tile = ptx::shared_address(shared_.ds);
    const int row = first_ + warp * 16 + (lane & 15);
#pragma unroll
    for (int step = 0; step < rows / 16; ++step)
      ptx::store_matrices(Scores::chunk(tile, row, 2 * step + (lane >> 4)), ds[step][0],
                          ds[step][1], ds[step][2], ds[step][3]);
    sync_for_products();
  }

  // A gradient of this warpgroup's 64 positions, and of q and k as they were before they were
  // rotated.
  __device__ void write(float (&d)[HeadDim / 2], T* to, std::int64_t stride, int head, int batch,
                        bool is_scaled) const {
    const ShortWork& work = call_.work;
    const int row = first_ + first_row();
    if (is_scaled && work.back_rotation) rotate_back(d, work.back_rotation, row, work.seq);
    const float factor = is_scaled ? work.scale : 1;
    write_rows(d, to + batch * work.seq * stride + head * HeadDim, stride, row, work.seq, factor,
               factor);
  }

  Shared& shared_;
  const ShortBackward<T>& call_;
  const int first_;  // of the keys, and of the queries
  // Both are set by their first product.
  float dk_[HeadDim / 2], dv_[HeadDim / 2];
};

// lse and rowsum(dY Y) of all queries: two threads a row.
template <class T, int HeadDim>
__device__ void prepare_stats(ShortBackwardShared<T, HeadDim>& shared, int stage, const float* lse,
                              int seq) {
  using Rows = Tile<T, rows, HeadDim>;
  constexpr int chunks = HeadDim / 16;
  static_assert(threads == 2 * rows);
  const int row = static_cast<int>(threadIdx.x) / 2;
  const float log_sum = row < seq ? lse[row] * log2e : INFINITY;
  const std::uint32_t y = ptx::shared_address(shared.y[stage]),
                      dy = ptx::shared_address(shared.dy[stage]);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const int chunk = 2 * i + static_cast<int>(threadIdx.x) % 2;
    const uint4 a = ptx::load_chunk(Rows::chunk(y, row, chunk));
    const uint4 b = ptx::load_chunk(Rows::chunk(dy, row, chunk));
    sum += ptx::dot<T>(a.x, b.x) + ptx::dot<T>(a.y, b.y) + ptx::dot<T>(a.z, b.z) +
           ptx::dot<T>(a.w, b.w);
  }
  sum += __shfl_xor_sync(0xffffffff, sum, 1);
  if (threadIdx.x % 2 == 0) shared.stats[row] = float2{log_sum, sum};
}

template <class T, int HeadDim, bool Causal>
__global__ void __launch_bounds__(threads, 1)
    short_backward_kernel(const __grid_constant__ ShortBackward<T> call, unsigned cluster) {
  extern __shared__ __align__(1024) unsigned char memory[];
  using Rows = Tile<T, rows, HeadDim>;
  auto& shared = *reinterpret_cast<ShortBackwardShared<T, HeadDim>*>(memory);
  const ShortWork& work = call.work;
  const int batch = static_cast<int>(blockIdx.y),
            n_own = work.n_heads / static_cast<int>(gridDim.x);
  const int first = static_cast<int>(blockIdx.x) * n_own;  // of the block's query heads
  const int kv_head = first / (work.n_heads / work.n_kv_heads);
  if (threadIdx.x == 0) {
    ptx::barrier_init(&shared.keys_full, 1);
    for (std::uint64_t& full : shared.rows_full) ptx::barrier_init(&full, 1);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  const auto load_head = [&](int h) {
    std::uint64_t* const full = &shared.rows_full[h % 2];
    ptx::barrier_arrive_expect(full, 3 * Rows::bytes);
    load_tile<Rows>(shared.q[h % 2], &call.q, full, 0, first + h, batch);
    load_tile<Rows>(shared.dy[h % 2], &call.dy, full, 0, first + h, batch);
    load_tile<Rows>(shared.y[h % 2], &call.y, full, 0, first + h, batch);
  };
  if (threadIdx.x == 0) {
    ptx::barrier_arrive_expect(&shared.keys_full, 2 * Rows::bytes);
    load_tile<Rows>(shared.k, &call.k, &shared.keys_full, 0, kv_head, batch);
    load_tile<Rows>(shared.v, &call.v, &shared.keys_full, 0, kv_head, batch);
    load_head(0);
  }
  // The angles are loaded while the tile is on its way, and for each tile again: kept, they would
  // cost the products registers.
  const auto rotate_when = [&](std::uint64_t* full, int parity, unsigned char* tile) {
    const TileRotation<T, HeadDim> rotate(work.rotation, work.seq);
    ptx::barrier_wait(full, parity);
    rotate(ptx::shared_address(tile));
  };
  rotate_when(&shared.keys_full, 0, shared.k);

  ShortKeys<T, HeadDim, Causal> keys(shared, call);
  for (int h = 0; h < n_own; ++h) {
    const std::int64_t head = static_cast<std::int64_t>(batch) * work.n_heads + first + h;
    rotate_when(&shared.rows_full[h % 2], h / 2 % 2, shared.q[h % 2]);
    prepare_stats(shared, h % 2, call.lse + head * work.seq, work.seq);
    sync_for_products();  // and nobody needs the head before any more
    if (threadIdx.x == 0 && h + 1 < n_own) load_head(h + 1);
    keys.add_head(h % 2, first + h, batch, h > 0);
  }
  keys.finish(kv_head, batch, static_cast<int>(blockIdx.x % cluster), static_cast<int>(cluster));
}

ShortWork work_of(const FlashShape& shape, const float* rotation, const float* back_rotation) {
  return {static_cast<int>(shape.seq),
          static_cast<int>(shape.n_heads),
          static_cast<int>(shape.n_kv_heads),
          shape.scale,
          shape.scale * log2e,
          reinterpret_cast<const float2*>(rotation),
          reinterpret_cast<const float2*>(back_rotation)};
}

CUtensorMap tile_map(const FlashShape& shape, const void* base, std::int64_t heads,
                     std::int64_t stride) {
  return head_map(shape.dtype, base, shape.batch, shape.seq, heads, shape.head_dim, stride, rows);
}

dim3 grid(std::int64_t blocks, const FlashShape& shape) {
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(shape.batch));
}

template <class T, int HeadDim>
void forward(const FlashShape& shape, const ShortForward<T>& call, cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(ShortForwardShared<T, HeadDim>);
  const auto kernel = shape.causal ? short_forward_kernel<T, HeadDim, true>
                                   : short_forward_kernel<T, HeadDim, false>;
  allow_shared_memory(kernel, bytes);
  launch_early(kernel, grid(shape.n_heads, shape), threads, bytes, stream, call);
  check(last_error(), "flash attention of short sequences");
}

// The most blocks of a cluster, at most 8, that share out the query heads of a key head evenly.
unsigned cluster_of(const FlashShape& shape) {
  std::int64_t blocks = 8;
  while (shape.n_heads / shape.n_kv_heads % blocks != 0) --blocks;
  return static_cast<unsigned>(blocks);
}

template <class T, int HeadDim>
void backward(const FlashShape& shape, const ShortBackward<T>& call, cudaStream_t stream) {
  constexpr std::size_t bytes = sizeof(ShortBackwardShared<T, HeadDim>);
  const auto kernel = shape.causal ? short_backward_kernel<T, HeadDim, true>
                                   : short_backward_kernel<T, HeadDim, false>;
  allow_shared_memory(kernel, bytes);
  const unsigned cluster = cluster_of(shape);
  launch_early(kernel, grid(shape.n_kv_heads * cluster, shape), cluster, threads, bytes, stream,
               call, cluster);
  check(last_error(), "flash attention of short sequences, backward");
}

}  // namespace

void forward_short(const FlashShape& shape, const FlashOperands& operands, void* y, float* lse,
                   cudaStream_t stream) {
  dispatch_16_bit(shape.dtype, [&]<class T>() {
    const ShortForward<T> call{work_of(shape, operands.rotation, nullptr),
                               tile_map(shape, operands.q, shape.n_heads, operands.q_stride),
                               tile_map(shape, operands.k, shape.n_kv_heads, operands.k_stride),
                               tile_map(shape, operands.v, shape.n_kv_heads, operands.v_stride),
                               static_cast<T*>(y),
                               lse};
    shape.head_dim == 64 ? forward<T, 64>(shape, call, stream)
                         : forward<T, 32>(shape, call, stream);
  });
}

void backward_short(const BackwardCall& at) {
  const FlashShape& shape = at.shape;
  const std::int64_t dense = shape.n_heads * shape.head_dim;
  dispatch_16_bit(shape.dtype, [&]<class T>() {
    const ShortBackward<T> call{
        work_of(shape, at.operands.rotation, at.gradients.rotation),
        tile_map(shape, at.operands.q, shape.n_heads, at.operands.q_stride),
        tile_map(shape, at.operands.k, shape.n_kv_heads, at.operands.k_stride),
        tile_map(shape, at.operands.v, shape.n_kv_heads, at.operands.v_stride),
        tile_map(shape, at.y, shape.n_heads, dense),
        tile_map(shape, at.dy, shape.n_heads, dense),
        at.lse,
        static_cast<T*>(at.gradients.dq),
        static_cast<T*>(at.gradients.dk),
        static_cast<T*>(at.gradients.dv),
        at.gradients.dq_stride,
        at.gradients.dk_stride,
        at.gradients.dv_stride};
    shape.head_dim == 64 ? backward<T, 64>(shape, call, at.stream)
                         : backward<T, 32>(shape, call, at.stream);
  });
}

}  // namespace ridge::gpu::sm90
