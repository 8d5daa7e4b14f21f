#pragma once

// What the forward and the backward kernel of attention share. Both work on tiles of `tile` queries
// by `tile` keys, held transposed: row j of a tile of scores holds the scores of key j for all
// queries of the tile, one beside the other. So a query is a lane of vector registers, and maxima
// and sums over keys need no operation across lanes.

#include <algorithm>
#include <atomic>
#include <memory>

#include "ridge/cpu/micro_gemm.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/rotations.h"
#include "ridge/ops/attention.h"

namespace ridge {

struct AttentionTiles {
  static constexpr std::int64_t tile = 64;
  // On the diagonal of a causal mask, products leave out the masked part in whole steps.
  static constexpr std::int64_t step = widest_vector;

  AttentionHeads heads;
  AttentionLayout at;
  std::int64_t batch, seq;
  std::int64_t tiles;                    // of one head's queries
  std::int64_t padded_dim;               // floats of a row that is the right operand of a product
  std::shared_ptr<Rotations> rotations;  // null without rotary embedding

  AttentionTiles(const AttentionHeads& h, CpuPrepare& prepare, Types qkv)
      : heads(h),
        at(attention_layout(h, qkv.size() == 1)),
        batch(qkv[0].shape[0]),
        seq(qkv[0].shape[1]),
        tiles((seq + tile - 1) / tile),
        padded_dim(padded_to_vectors(h.head_dim)) {
    if (h.rope_theta != 0.0f) rotations = prepare.rotations.get(h.rope_theta, h.head_dim / 2, seq);
  }

  std::int64_t head_size() const { return seq * heads.head_dim; }
  // Keys that tile `t` of queries looks at, and whether a block of them lies on the diagonal.
  std::int64_t keys_end(std::int64_t t) const {
    return heads.causal ? std::min(seq, (t + 1) * tile) : seq;
  }
  bool diagonal(std::int64_t t, std::int64_t k0) const { return heads.causal && k0 == t * tile; }

  // The floats of keys and values as `pack` leaves them: [batch, n_kv_heads] matrices of keys, then
  // as many of values, each [S, d].
  std::int64_t packed_floats() const {
    return padded_to_vectors(2 * batch * heads.n_kv_heads * head_size());
  }
  const float* packed_keys(const float* packed, std::int64_t b, std::int64_t kv) const {
    return packed + (b * heads.n_kv_heads + kv) * head_size();
  }
  const float* packed_values(const float* packed, std::int64_t b, std::int64_t kv) const {
    return packed_keys(packed, batch + b, kv);
  }

  // The vector at batch b, position s, head h of an operand.
  template <class T>
  T* vector_of(T* operand, const HeadColumns& layout, std::int64_t b, std::int64_t s,
               std::int64_t h) const {
    return operand + layout.offset + (b * seq + s) * layout.stride + h * heads.head_dim;
  }

  // rows[i, c] = factor * x[s0 + i, h, c] for `count` positions of batch b, and 0 beyond d.
  template <class T>
  void load_rows(const T* x, const HeadColumns& layout, std::int64_t b, std::int64_t h,
                 std::int64_t s0, std::int64_t count, float factor, float* rows,
                 std::int64_t stride) const {
    const std::int64_t d = heads.head_dim;
    for (std::int64_t i = 0; i < count; ++i, rows += stride) {
      const T* from = vector_of(x, layout, b, s0 + i, h);
#pragma omp simd
      for (std::int64_t c = 0; c < d; ++c) rows[c] = load(&from[c]) * factor;
      for (std::int64_t c = d; c < stride; ++c) rows[c] = 0.0f;
    }
  }

  // x[s0 + i, h, c] = rows[i, c].
  template <class T>
  void store_rows(const float* rows, std::int64_t stride, T* x, const HeadColumns& layout,
                  std::int64_t b, std::int64_t h, std::int64_t s0, std::int64_t count) const {
    const std::int64_t d = heads.head_dim;
    for (std::int64_t i = 0; i < count; ++i, rows += stride) {
      T* to = vector_of(x, layout, b, s0 + i, h);
#pragma omp simd
      for (std::int64_t c = 0; c < d; ++c) store(&to[c], rows[c]);
    }
  }

  // Rotates rows by their positions from s0 on, or back with direction -1; nothing without rotary
  // embedding.
  void rotate_rows(float* rows, std::int64_t stride, std::int64_t s0, std::int64_t count,
                   float direction) const {
    if (!rotations) return;
    const std::int64_t pairs = heads.head_dim / 2;
    const float *cos = rotations->cos() + s0 * pairs, *sin = rotations->sin() + s0 * pairs;
    // Rows without a gap are one loop: a head may have few pairs.
    if (stride == 2 * pairs) return rotate(rows, rows, cos, sin, direction, count * pairs);
    for (std::int64_t i = 0; i < count; ++i)
      rotate(rows + i * stride, rows + i * stride, cos + i * pairs, sin + i * pairs, direction,
             pairs);
  }

  // The rows of a tile of queries (or of gradients like them), rows[i, padded_dim]: zero beyond the
  // sequence up to a whole vector. Nobody reads what becomes of those, but it must not be slow.
  template <class T>
  void load_tile(const T* x, const HeadColumns& layout, std::int64_t b, std::int64_t h,
                 std::int64_t s0, float factor, float* rows) const {
    const std::int64_t count = std::min(tile, seq - s0);
    load_rows(x, layout, b, h, s0, count, factor, rows, padded_dim);
    std::fill(rows + count * padded_dim, rows + padded_to_vectors(count) * padded_dim, 0.0f);
  }

  // Fills `packed` with the rotated keys and the values of the whole batch.
  template <class T>
  void pack(ThreadPool& pool, const T* k, const T* v, float* packed) const {
    if (rotations) rotations->fill();
    const std::int64_t kv_heads = heads.n_kv_heads, d = heads.head_dim;
    pool.run(2 * batch * kv_heads * tiles, [=, this](std::int64_t task) {
      const std::int64_t matrix = task / tiles, s0 = task % tiles * tile;
      const std::int64_t count = std::min(tile, seq - s0);
      const bool keys = matrix < batch * kv_heads;
      float* rows = packed + matrix * head_size() + s0 * d;
      load_rows(keys ? k : v, keys ? at.k : at.v, matrix / kv_heads % batch, matrix % kv_heads, s0,
                count, 1.0f, rows, d);
      if (keys) rotate_rows(rows, d, s0, count, 1.0f);
    });
  }

  // out[j, i] = sum_c x[j, c] columns[c, i] for keys j of a block and queries i of a tile. On the
  // diagonal, only from the step of i in which j lies.
  void times_queries(const float* x, const float* columns, float* out, std::int64_t keys,
                     std::int64_t lanes, bool diagonal) const {
    const std::int64_t d = heads.head_dim, rows = diagonal ? step : keys;
    for (std::int64_t j = 0; j < keys; j += rows) {
      const std::int64_t i = diagonal ? j : 0;
      small_product({x + j * d, d, 1}, {columns + i, tile}, {out + j * tile + i, tile},
                    {std::min(rows, keys - j), lanes - i, d}, false);
    }
  }

  // out[c, i] (+)= sum_j x[j, c] weights[j, i].
  void add_over_keys(const float* x, const float* weights, float* out, std::int64_t keys,
                     std::int64_t lanes, bool diagonal, bool accumulate) const {
    const std::int64_t d = heads.head_dim, depth = diagonal ? step : keys;
    for (std::int64_t j = 0; j < keys; j += depth) {
      const std::int64_t i = diagonal ? j : 0;
      small_product({x + j * d, 1, d}, {weights + j * tile + i, tile}, {out + i, tile},
                    {d, lanes - i, std::min(depth, keys - j)}, accumulate || j > 0);
    }
  }

  // out[j, c] += sum_i weights[j, i] rows[i, c].
  void add_over_queries(const float* weights, const float* rows, float* out, std::int64_t keys,
                        std::int64_t queries, bool diagonal) const {
    const std::int64_t height = diagonal ? step : keys;
    for (std::int64_t j = 0; j < keys; j += height) {
      const std::int64_t i = diagonal ? j : 0;
      small_product({weights + j * tile + i, tile, 1}, {rows + i * padded_dim, padded_dim},
                    {out + j * padded_dim, padded_dim},
                    {std::min(height, keys - j), padded_dim, queries - i}, true);
    }
  }
};

// Calls body(task, scratch) for each task, with `floats` of scratch that no other thread uses.
template <class F>
void run_with_scratch(ThreadPool& pool, std::int64_t tasks, float* scratch, std::int64_t floats,
                      const F& body) {
  std::atomic<std::int64_t> next{0};
  pool.run(std::min<std::int64_t>(pool.size(), tasks), [&](std::int64_t worker) {
    for (std::int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
      body(task, scratch + worker * floats);
  });
}

}  // namespace ridge
