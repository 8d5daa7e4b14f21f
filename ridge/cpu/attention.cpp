#include "ridge/ops/attention.h"

#include <cmath>
#include <limits>

#include "ridge/cpu/attention_tiles.h"
#include "ridge/cpu/simd.h"

namespace ridge {
namespace {

constexpr std::int64_t tile = AttentionTiles::tile;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// One thread's memory: [padded_dim, tile] matrices of the queries and of the results, [tile, tile]
// of scores, [tile, padded_dim] of rows on their way in or out; and of each query the maximum and
// the sum so far, and what a new maximum leaves of them.
struct Scratch {
  float *q, *y, *p, *rows, *max, *sum, *rescale;

  Scratch(float* memory, std::int64_t padded_dim)
      : q(memory),
        y(q + padded_dim * tile),
        p(y + padded_dim * tile),
        rows(p + tile * tile),
        max(rows + tile * padded_dim),
        sum(max + tile),
        rescale(sum + tile) {}
  static std::int64_t floats(std::int64_t padded_dim) {
    return 3 * padded_dim * tile + tile * tile + 3 * tile;
  }
};

// Turns the scores of a block of keys into exp(score - maximum), and updates maximum and sum. On
// the diagonal, a step of queries sees no keys beyond its own last. A step at a time, so that
// maxima and sums stay in registers.
void online_softmax(const Scratch& at, std::int64_t keys, std::int64_t lanes, bool diagonal) {
  constexpr std::int64_t step = AttentionTiles::step;
  for (std::int64_t i0 = 0; i0 < lanes; i0 += step) {
    const std::int64_t end = diagonal ? std::min(keys, i0 + step) : keys;
    float* scores = at.p + i0;
    if (diagonal)
      for (std::int64_t j = i0 + 1; j < end; ++j)
        std::fill_n(scores + j * tile, j - i0, minus_infinity);
    float max[step], sum[step];
    std::copy_n(at.max + i0, step, max);
    for (std::int64_t j = 0; j < end; ++j)
#pragma omp simd
      for (std::int64_t i = 0; i < step; ++i)
        max[i] = scores[j * tile + i] > max[i] ? scores[j * tile + i] : max[i];
#pragma omp simd
    for (std::int64_t i = 0; i < step; ++i) {
      const float rescale = vexp(at.max[i0 + i] - max[i]);
      at.rescale[i0 + i] = rescale;
      sum[i] = at.sum[i0 + i] * rescale;
    }
    for (std::int64_t j = 0; j < end; ++j)
#pragma omp simd
      for (std::int64_t i = 0; i < step; ++i)
        sum[i] += scores[j * tile + i] = vexp(scores[j * tile + i] - max[i]);
    std::copy_n(max, step, at.max + i0);
    std::copy_n(sum, step, at.sum + i0);
  }
}

// y[c, i] *= factor[i].
void scale_columns(float* y, const float* factor, std::int64_t d, std::int64_t lanes) {
  for (std::int64_t c = 0; c < d; ++c)
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) y[c * tile + i] *= factor[i];
}

template <class T>
struct Operands {
  const T* q;
  const float* packed;
  T* y;
  float* lse;
};

// All of tile t of query head h.
template <class T>
void attend(const AttentionTiles& tiles, const Operands<T>& io, const Scratch& at, std::int64_t b,
            std::int64_t h, std::int64_t t) {
  const std::int64_t d = tiles.heads.head_dim, q0 = t * tile;
  const std::int64_t count = std::min(tile, tiles.seq - q0), lanes = padded_to_vectors(count);
  const float* k = tiles.packed_keys(io.packed, b, h / tiles.heads.group());
  const float* v = tiles.packed_values(io.packed, b, h / tiles.heads.group());
  tiles.load_tile(io.q, tiles.at.q, b, h, q0, tiles.heads.scale, at.rows);
  tiles.rotate_rows(at.rows, tiles.padded_dim, q0, count, 1.0f);
  transpose(at.rows, tiles.padded_dim, at.q, tile, lanes, tiles.padded_dim);
  std::fill_n(at.max, tile, minus_infinity);
  std::fill_n(at.sum, tile, 0.0f);
  for (std::int64_t k0 = 0; k0 < tiles.keys_end(t); k0 += tile) {
    const std::int64_t keys = std::min(tile, tiles.seq - k0);
    const bool diagonal = tiles.diagonal(t, k0);
    tiles.times_queries(k + k0 * d, at.q, at.p, keys, lanes, diagonal);
    online_softmax(at, keys, lanes, diagonal);
    if (k0 > 0) scale_columns(at.y, at.rescale, d, lanes);
    tiles.add_over_keys(v + k0 * d, at.p, at.y, keys, lanes, diagonal, k0 > 0);
  }
  for (std::int64_t i = 0; i < lanes; ++i) at.rescale[i] = 1.0f / at.sum[i];
  scale_columns(at.y, at.rescale, d, lanes);
  transpose(at.y, tile, at.rows, tiles.padded_dim, tiles.padded_dim, lanes);
  tiles.store_rows(at.rows, tiles.padded_dim, io.y, {0, 0, tiles.heads.q_dim()}, b, h, q0, count);
  float* lse = io.lse + (b * tiles.heads.n_heads + h) * tiles.seq + q0;
  for (std::int64_t i = 0; i < count; ++i) lse[i] = at.max[i] + std::log(at.sum[i]);
}

template <class T>
KernelPtr forward(const Attention& op, CpuPrepare& prepare) {
  const AttentionTiles tiles(op, prepare, prepare.in);
  const std::int64_t scratch = Scratch::floats(tiles.padded_dim);
  const std::int64_t heads = op.n_heads, tasks = tiles.batch * heads * tiles.tiles;
  prepare.workspace =
      static_cast<std::size_t>(tiles.packed_floats() + prepare.pool.size() * scratch) *
      sizeof(float);
  return make_kernel([&pool = prepare.pool, tiles, scratch, heads, tasks](const Launch& call) {
    auto* workspace = static_cast<float*>(call.workspace);
    const AttentionLayout& at = tiles.at;
    tiles.pack(pool, call.in<T>(at.k.operand), call.in<T>(at.v.operand), workspace);
    const Operands<T> io{call.in<T>(0), workspace, call.out<T>(0), call.out<float>(1)};
    run_with_scratch(pool, tasks, workspace + tiles.packed_floats(), scratch,
                     [&](std::int64_t task, float* memory) {
                       // The longest first: under a causal mask, the last tiles.
                       const std::int64_t matrix = task % (tiles.batch * heads);
                       const std::int64_t t = tiles.tiles - 1 - task / (tiles.batch * heads);
                       attend(tiles, io, Scratch(memory, tiles.padded_dim), matrix / heads,
                              matrix % heads, t);
                     });
  });
}

}  // namespace

KernelPtr Attention::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return forward<T>(*this, prepare); });
}

}  // namespace ridge
