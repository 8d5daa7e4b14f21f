#pragma once

#include "ridge/gpu/kernels/attention/attention_tiles.h"
#include "ridge/ops/attention.h"

namespace ridge::gpu {

inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

struct AttentionShape {
  int batch, seq, n_heads, n_kv_heads;
  float scale;
  bool causal;
};

inline AttentionShape attention_shape(const AttentionHeads& heads, std::int64_t batch,
                                      std::int64_t seq) {
  return {.batch = static_cast<int>(batch),
          .seq = static_cast<int>(seq),
          .n_heads = static_cast<int>(heads.n_heads),
          .n_kv_heads = static_cast<int>(heads.n_kv_heads),
          .scale = heads.scale,
          .causal = heads.causal};
}

template <class T>
struct ForwardOperands {
  HeadRows<const float> q, k;  // rotated
  HeadRows<const T> v;
  HeadRows<T> y;
  float* lse;  // [batch, n_heads, seq]
};

template <class Tile>
constexpr std::size_t forward_shared_bytes() {
  return ((Tile::rows + 2 * Tile::others) * Tile::stride + Tile::rows * Tile::scores) *
         sizeof(float);
}

// Takes the scores of a tile of keys into the running maximum and sum of each row, rescales what
// the tiles before have left in o, and leaves exp2(score - maximum) in the row's p.
template <class Tile, int R, int N, int C>
__device__ inline void online_softmax(const Tile& at, const float (&s)[R][N], float (&max)[R],
                                      float (&sum)[R], float (&o)[R][C], float* own_p) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    float m = max[r];
#pragma unroll
    for (int j = 0; j < N; ++j) m = fmaxf(m, s[r][j]);
    m = Tile::template reduce<Max>(m);
    const float rescale = exp2f(max[r] - m);
    max[r] = m;
    float total = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float x = exp2f(s[r][j] - m);
      total += x;
      own_p[r * Tile::score_step + at.lane + Tile::lanes * j] = x;
    }
    sum[r] = sum[r] * rescale + total;
#pragma unroll
    for (int c = 0; c < C; ++c) o[r][c] *= rescale;
  }
}

template <class Tile, class T, int R, int C>
__device__ inline void store_results(const Tile& at, const AttentionShape& shape,
                                     const ForwardOperands<T>& io, int b, int h, int q0,
                                     const float (&max)[R], const float (&sum)[R],
                                     const float (&o)[R][C]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float total = Tile::template reduce<Sum>(sum[r]), scale = 1.0f / total;
    const int i = q0 + at.row(r);
    if (i >= shape.seq) continue;
    T* y = io.y.at(static_cast<std::int64_t>(b) * shape.seq + i, h);
#pragma unroll
    for (int n = 0; n < C / 4; ++n) {
      float x[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = o[r][4 * n + e] * scale;
      store_columns(y, 4 * (at.lane + Tile::lanes * n), io.y.width, io.y.vector, x);
    }
    if (at.lane == 0)
      io.lse[(static_cast<std::int64_t>(b) * shape.n_heads + h) * shape.seq + i] =
          (max[r] + log2f(total)) * ln_2;
  }
}

// Block (h, b, t) computes a tile of queries of one head, the last, which see the most keys, first.
// Keys and values pass through shared memory a tile at a time, the one being copied while the other
// is used. Scores are in units of log 2: the queries are scaled by scale / ln 2.
template <class Tile, class T>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    attention_forward(AttentionShape shape, ForwardOperands<T> io) {
  begin_kernel();
  constexpr int columns = Tile::columns, rows = Tile::rows, keys = Tile::others;
  constexpr int stride = Tile::stride, lanes = Tile::lanes, R = Tile::rows_each;
  constexpr int N = Tile::others_each, C = Tile::columns_each, threads = Tile::threads;
  constexpr float minus_infinity = -__builtin_huge_valf();
  float* q = dynamic_shared<float>();
  float* k = q + rows * stride;
  float* v = k + keys * stride;
  float* p = v + keys * stride;

  const Tile at;
  const int h = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int t = static_cast<int>(gridDim.z - 1 - blockIdx.z);
  const int kv = h / (shape.n_heads / shape.n_kv_heads);
  const std::int64_t first = static_cast<std::int64_t>(b) * shape.seq;
  const int q0 = t * rows, keys_end = shape.causal ? min(shape.seq, q0 + rows) : shape.seq;
  const int band_first = q0 + at.band * Tile::band_rows;

  load_tile<rows, columns, stride, threads>(q, io.q, first + q0, h, shape.seq - q0);
  load_tile<keys, columns, stride, threads>(k, io.k, first, kv, shape.seq);
  await_copies();
  scale_tile<rows, columns, stride, threads>(q, shape.scale * log2_e);

  float o[R][C] = {}, max[R], sum[R] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) max[r] = minus_infinity;
  const float* own_q = q + at.row(0) * stride;
  const float* own_k = k + at.lane * stride;
  const float* own_v = v + at.lane * 4;
  float* own_p = p + at.row(0) * Tile::scores;

  for (int k0 = 0; k0 < keys_end; k0 += keys) {
    await_copies();
    __syncthreads();  // k is there, and v is free
    load_tile<keys, columns, stride, threads>(v, io.v, first + k0, kv, shape.seq - k0);
    // How many keys of this tile any of the band's queries sees.
    const int seen = shape.causal ? min(keys, band_first + Tile::band_rows - k0) : keys;
    if (seen > 0) {
      float s[R][N] = {};
      if (seen * 2 > keys || N == 1)
        add_rows_by_rows<columns, Tile::row_step, Tile::other_step, N>(own_q, own_k, s);
      else
        add_rows_by_rows<columns, Tile::row_step, Tile::other_step, (N + 1) / 2>(own_q, own_k, s);
      if (k0 + keys > shape.seq || (shape.causal && k0 + keys > band_first + 1)) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const int end = shape.causal ? min(shape.seq, q0 + at.row(r) + 1) : shape.seq;
#pragma unroll
          for (int j = 0; j < N; ++j)
            if (lanes * j >= end - k0 - at.lane) s[r][j] = minus_infinity;
        }
      }
      online_softmax(at, s, max, sum, o, own_p);
    }
    await_copies();
    __syncthreads();  // p and v are there, and k is free
    if (k0 + keys < keys_end)
      load_tile<keys, columns, stride, threads>(k, io.k, first + k0 + keys, kv,
                                                shape.seq - k0 - keys);
    if (seen > 0)
      add_rows_by_columns<Tile::score_step, stride, 4 * lanes>(own_p, own_v, (seen + 3) / 4 * 4, o);
  }
  store_results(at, shape, io, b, h, q0, max, sum, o);
}

}  // namespace ridge::gpu
