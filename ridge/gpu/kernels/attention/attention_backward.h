#pragma once

#include "ridge/gpu/kernels/attention/attention_forward.h"
#include "ridge/gpu/kernels/attention/attention_rotary.h"

namespace ridge::gpu {

template <class T>
struct BackwardOperands {
  HeadRows<const float> q, k;  // rotated
  HeadRows<const T> v, dy;
  const float* lse;     // [batch, n_heads, seq]
  const float* delta;   // [batch, n_heads, seq]: sum_c dy * y
  HeadRows<float> sum;  // of dq, among the blocks
  HeadRows<T> dq, dk, dv;
  const float2* rotations;  // [seq, head_dim / 2]: cos and sin; null without rotary embedding
  int* turns;  // 0 at first: the next block, and of each tile of queries the blocks that are done
};

template <class Tile>
constexpr std::size_t backward_shared_bytes() {
  return (2 * (Tile::rows + Tile::others) * Tile::stride + 2 * Tile::rows * Tile::scores) *
         sizeof(float);
}

template <class Tile>
std::int64_t backward_turns(const AttentionShape& shape) {
  return 1 + static_cast<std::int64_t>(shape.batch) * shape.n_heads *
                 ((shape.seq + Tile::others - 1) / Tile::others);
}

inline constexpr int delta_threads = 256, delta_lanes = 16;

// delta[b, h, s] = sum_c dy[b, s, h, c] * y[b, s, h, c], by delta_lanes threads each; and zeroes
// the `turns` of the kernel that follows.
template <class T>
__global__ void __launch_bounds__(delta_threads)
    attention_delta(HeadRows<const T> dy, HeadRows<const T> y, float* delta, AttentionShape shape,
                    int* turns, std::int64_t n_turns) {
  begin_kernel();
  const std::int64_t thread =
      static_cast<std::int64_t>(blockIdx.x) * delta_threads + static_cast<int>(threadIdx.x);
  const std::int64_t all = static_cast<std::int64_t>(gridDim.x) * delta_threads;
  for (std::int64_t i = thread; i < n_turns; i += all) turns[i] = 0;
  const std::int64_t row = thread / delta_lanes,
                     rows = static_cast<std::int64_t>(shape.batch) * shape.seq;
  const int lane = static_cast<int>(thread % delta_lanes);
  const std::int64_t position = row / shape.n_heads;
  const int head = static_cast<int>(row % shape.n_heads);
  float sum = 0;
  if (position < rows)
    for (int c = 4 * lane; c < y.width; c += 4 * delta_lanes) {
      float a[4], b[4];
      load_columns(dy.at(position, head), c, y.width, dy.vector, a);
      load_columns(y.at(position, head), c, y.width, y.vector, b);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum = fmaf(a[e], b[e], sum);
    }
#pragma unroll
  for (int mask = delta_lanes / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane == 0 && position < rows)
    delta[(position / shape.seq * shape.n_heads + head) * shape.seq + position % shape.seq] = sum;
}

// Rotates the columns c .. c + 3 of a gradient back, and stores them.
template <class T>
__device__ inline void store_gradient(const HeadRows<T>& to, std::int64_t position, int head, int s,
                                      int c, const float2* rotations, float (&x)[4]) {
  if (rotations) rotate_columns(x, rotations, s, c, to.width, -1.0f);
  store_columns(to.at(position, head), c, to.width, to.vector, x);
}

// Waits until `turn` is t, which was `seen` a while ago; what the blocks before this one stored is
// then visible to all of its threads after a barrier.
__device__ inline void await_turn(int* turn, int t, int seen) {
  while (seen != t) seen = *static_cast<volatile int*>(turn);
  __threadfence();
}

// After a barrier: what all of this block's threads stored is visible to whoever sees the next
// turn.
__device__ inline void pass_turn(int* turn) {
  __threadfence();
  atomicAdd(turn, 1);
}

// A block's shared memory: tiles of keys and values, which stay, of queries and the gradients of
// their results, which pass through, and of probabilities and of the scores' gradients, [key,
// query].
template <class Tile>
struct BackwardTiles {
  float *k, *v, *q, *dy, *p, *ds;

  __device__ explicit BackwardTiles(float* shared)
      : k(shared),
        v(k + Tile::rows * Tile::stride),
        q(v + Tile::rows * Tile::stride),
        dy(q + Tile::others * Tile::stride),
        p(dy + Tile::others * Tile::stride),
        ds(p + Tile::rows * Tile::scores) {}
};

// Which tiles of keys and queries meet.
struct BackwardPlace {
  int b, h, kv;  // sequence, query head, key head
  int t;         // of the tile of keys, counted
  int k0, q0;    // the tiles' first positions
};

// p = exp2(s - lse) and ds = p * (dy v - delta), 0 where masked.
template <class Tile, class T>
__device__ inline void probabilities(const Tile& at, const AttentionShape& shape,
                                     const BackwardOperands<T>& io, const BackwardPlace& place,
                                     const BackwardTiles<Tile>& tiles) {
  constexpr int R = Tile::rows_each, N = Tile::others_each, lanes = Tile::lanes;
  const int own = at.row(0) * Tile::stride, other = at.lane * Tile::stride;
  const int own_scores = at.row(0) * Tile::scores + at.lane, q0 = place.q0, k0 = place.k0;
  const std::int64_t row =
      (static_cast<std::int64_t>(place.b) * shape.n_heads + place.h) * shape.seq;
  float s[R][N] = {}, dp[R][N] = {}, lse[N], delta[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int query = q0 + at.lane + lanes * j;
    lse[j] = query < shape.seq ? io.lse[row + query] : 0.0f;
    delta[j] = query < shape.seq ? io.delta[row + query] : 0.0f;
  }
  add_rows_by_rows<Tile::columns, Tile::row_step, Tile::other_step, N>(tiles.k + own,
                                                                       tiles.q + other, s);
  add_rows_by_rows<Tile::columns, Tile::row_step, Tile::other_step, N>(tiles.v + own,
                                                                       tiles.dy + other, dp);
  const bool masked = q0 + Tile::others > shape.seq || k0 + Tile::rows > shape.seq ||
                      (shape.causal && q0 < k0 + Tile::rows - 1);
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int key = k0 + at.row(r), query = q0 + at.lane + lanes * j;
      float p = exp2f(fmaf(lse[j], -log2_e, s[r][j]));
      if (masked && (key >= shape.seq || query >= shape.seq || (shape.causal && key > query)))
        p = 0.0f;
      tiles.p[own_scores + r * Tile::score_step + lanes * j] = p;
      tiles.ds[own_scores + r * Tile::score_step + lanes * j] = p * (dp[r][j] - delta[j]);
    }
}

// Adds this block's part of dq to the sum of the blocks before; the last one stores the gradient.
template <class Tile, class T>
__device__ inline void add_query_gradient(const Tile& at, const AttentionShape& shape,
                                          const BackwardOperands<T>& io, const BackwardPlace& place,
                                          const BackwardTiles<Tile>& tiles) {
  constexpr int C = Tile::columns_each, lanes = Tile::lanes;
  constexpr int Q = Tile::others * lanes / Tile::threads;  // queries of a thread, side by side
  const int own = (at.band * Tile::groups + at.group) * Q, q0 = place.q0;
  const int last_key = shape.causal ? min(shape.seq, q0 + Tile::others) - 1 : shape.seq - 1;
  const bool last = place.t == last_key / Tile::rows;
  const std::int64_t first = static_cast<std::int64_t>(place.b) * shape.seq;
  float sum[Q][C] = {}, dq[Q][C] = {};
  if (place.t > 0) {
#pragma unroll
    for (int r = 0; r < Q; ++r) {
      if (q0 + own + r >= shape.seq) continue;
      const float* row = io.sum.at(first + q0 + own + r, place.h);
#pragma unroll
      for (int n = 0; n < C / 4; ++n)
        load_columns(row, 4 * (at.lane + lanes * n), io.sum.width, io.sum.vector,
                     *reinterpret_cast<float(*)[4]>(&sum[r][4 * n]));
    }
  }
  add_columns_by_columns<Tile::rows, Tile::scores, Tile::stride, 4 * lanes>(
      tiles.ds + own, tiles.k + at.lane * 4, dq);
#pragma unroll
  for (int r = 0; r < Q; ++r) {
    const int s = q0 + own + r;
    if (s >= shape.seq) continue;
#pragma unroll
    for (int n = 0; n < C / 4; ++n) {
      const int c = 4 * (at.lane + lanes * n);
      float x[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = sum[r][4 * n + e] + dq[r][4 * n + e];
      if (!last) {
        store_columns(io.sum.at(first + s, place.h), c, io.sum.width, io.sum.vector, x);
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] *= ln_2;  // the keys hold scale / ln 2
      store_gradient(io.dq, first + s, place.h, s, c, io.rotations, x);
    }
  }
}

template <class Tile, class T, int R, int C>
__device__ inline void store_key_gradients(const Tile& at, const AttentionShape& shape,
                                           const BackwardOperands<T>& io,
                                           const BackwardPlace& place, const float (&dk)[R][C],
                                           const float (&dv)[R][C]) {
  const std::int64_t first = static_cast<std::int64_t>(place.b) * shape.seq;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int s = place.k0 + at.row(r);
    if (s >= shape.seq) continue;
#pragma unroll
    for (int n = 0; n < C / 4; ++n) {
      const int c = 4 * (at.lane + Tile::lanes * n);
      float x[4], y[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        x[e] = dk[r][4 * n + e] * shape.scale;
        y[e] = dv[r][4 * n + e];
      }
      store_gradient(io.dk, first + s, place.kv, s, c, io.rotations, x);
      store_columns(io.dv.at(first + s, place.kv), c, io.dv.width, io.dv.vector, y);
    }
  }
}

// One block for each tile of keys of one key head. It sums dk and dv over the tiles of queries that
// see its keys, of all query heads of the group. The part of dq that it finds for each it adds to a
// sum in device memory, and the blocks do so one after another in the order of their keys: the sum
// is the same in each run. A block takes its place in that order as it starts, so that those which
// it waits for have all started; and it goes through the queries from the last to the first, so
// that it waits when it starts and hardly later.
template <class Tile, class T>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    attention_backward(AttentionShape shape, BackwardOperands<T> io) {
  begin_kernel();
  constexpr int columns = Tile::columns, keys = Tile::rows, queries = Tile::others;
  constexpr int stride = Tile::stride, threads = Tile::threads, lanes = Tile::lanes;
  const BackwardTiles<Tile> tiles(dynamic_shared<float>());
  __shared__ int block;

  const Tile at;
  const bool leader = threadIdx.x == 0;
  if (leader) block = atomicAdd(io.turns, 1);
  __syncthreads();
  const int heads = shape.batch * shape.n_kv_heads, group = shape.n_heads / shape.n_kv_heads;
  const int q_tiles = (shape.seq + queries - 1) / queries;
  BackwardPlace place{};
  place.t = block / heads, place.b = block % heads / shape.n_kv_heads;
  place.kv = block % shape.n_kv_heads, place.k0 = place.t * keys;
  const int first_q = shape.causal ? place.k0 / queries : 0, count = (q_tiles - first_q) * group;
  const std::int64_t first = static_cast<std::int64_t>(place.b) * shape.seq;
  // All heads of a group meet a tile of queries before the next.
  auto load_queries = [&](int i) {
    const int q0 = (q_tiles - 1 - i / group) * queries, h = place.kv * group + i % group;
    load_tile<queries, columns, stride, threads>(tiles.q, io.q, first + q0, h, shape.seq - q0);
    load_tile<queries, columns, stride, threads>(tiles.dy, io.dy, first + q0, h, shape.seq - q0);
  };

  const int keys_left = shape.seq - place.k0;
  load_tile<keys, columns, stride, threads>(tiles.k, io.k, first + place.k0, place.kv, keys_left);
  load_tile<keys, columns, stride, threads>(tiles.v, io.v, first + place.k0, place.kv, keys_left);
  load_queries(0);
  await_copies();
  // So that scores are in units of log 2.
  scale_tile<keys, columns, stride, threads>(tiles.k, shape.scale * log2_e);

  float dk[Tile::rows_each][Tile::columns_each] = {}, dv[Tile::rows_each][Tile::columns_each] = {};
  const int own_scores = at.row(0) * Tile::scores;
  int* last_turn = nullptr;
  for (int i = 0; i < count; ++i) {
    const int tile = q_tiles - 1 - i / group;
    place.h = place.kv * group + i % group, place.q0 = tile * queries;
    int* turn = io.turns + 1 +
                (static_cast<std::int64_t>(place.b) * shape.n_heads + place.h) * q_tiles + tile;
    await_copies();
    __syncthreads();  // q and dy are there, p and ds are free, and the last part of dq is stored
    int seen = 0;
    if (leader) {
      if (i > 0) pass_turn(last_turn);
      seen = *static_cast<volatile int*>(turn);
    }
    last_turn = turn;
    probabilities(at, shape, io, place, tiles);
    __syncthreads();  // p and ds are there
    add_rows_by_columns<Tile::score_step, stride, 4 * lanes>(tiles.p + own_scores,
                                                             tiles.dy + at.lane * 4, queries, dv);
    add_rows_by_columns<Tile::score_step, stride, 4 * lanes>(tiles.ds + own_scores,
                                                             tiles.q + at.lane * 4, queries, dk);
    if (leader) await_turn(turn, place.t, seen);
    __syncthreads();  // the sum of dq is this block's to change, and q and dy are free
    if (i + 1 < count) load_queries(i + 1);
    add_query_gradient(at, shape, io, place, tiles);
  }
  __syncthreads();  // the last part of dq is stored
  if (leader) pass_turn(last_turn);
  store_key_gradients(at, shape, io, place, dk, dv);
}

}  // namespace ridge::gpu
