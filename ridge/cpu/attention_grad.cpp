#include "ridge/cpu/attention_tiles.h"
#include "ridge/cpu/simd.h"
#include "ridge/ops/attention.h"

namespace ridge {
namespace {

constexpr std::int64_t tile = AttentionTiles::tile;
constexpr AttentionGrad::Operands operand;

// One thread's memory: the queries and the gradients of the results of a tile, both as
// [tile, padded_dim] rows and as [padded_dim, tile] columns; the columns of dq; [tile, tile] of the
// probabilities and of their gradients; and of each query lse and sum(dy * y).
struct Scratch {
  float *q_rows, *dy_rows, *q, *dy, *dq, *p, *ds, *lse, *dot;

  Scratch(float* memory, std::int64_t padded_dim)
      : q_rows(memory),
        dy_rows(q_rows + tile * padded_dim),
        q(dy_rows + tile * padded_dim),
        dy(q + tile * padded_dim),
        dq(dy + tile * padded_dim),
        p(dq + tile * padded_dim),
        ds(p + tile * tile),
        lse(ds + tile * tile),
        dot(lse + tile) {}
  static std::int64_t floats(std::int64_t padded_dim) {
    return 5 * tile * padded_dim + 2 * tile * tile + 2 * tile;
  }
};

template <class T>
struct Operands {
  const T *dy, *y, *q, *k, *v;
  const float* lse;
  T *dq, *dk, *dv;
};

// The queries that meet one key head, the tiles of all query heads of its group, are cut into
// `parts` runs: as few as make min_tasks tasks in all. Each writes its own tiles of dq and sums dk
// and dv for itself; the sums of the parts are then added in order. By shape alone, and in memory
// linear in S. A key head in one part is summed in its thread's scratch and stored at once.
struct Partition {
  static constexpr std::int64_t min_tasks = 16;
  std::int64_t key_heads, parts, tiles, sums_floats;  // the last three of one key head

  explicit Partition(const AttentionTiles& a)
      : key_heads(a.batch * a.heads.n_kv_heads),
        parts((min_tasks + key_heads - 1) / key_heads),
        tiles(a.heads.group() * a.tiles),
        sums_floats(2 * a.seq * a.padded_dim) {
    parts = std::min(parts, tiles);
  }
  std::int64_t first_tile(std::int64_t part) const { return part * tiles / parts; }
  std::int64_t shared_floats() const { return parts > 1 ? key_heads * parts * sums_floats : 0; }
  std::int64_t scratch_floats(const AttentionTiles& a) const {
    return Scratch::floats(a.padded_dim) + (parts > 1 ? 0 : sums_floats);
  }
};

// p = exp(s - lse) and ds = p * (dp - dot), where s and dp stand at p and ds; 0 where masked.
void probabilities(const Scratch& at, std::int64_t keys, std::int64_t lanes, bool diagonal) {
  for (std::int64_t j = 0; j < keys; ++j) {
    const std::int64_t first = diagonal ? j / AttentionTiles::step * AttentionTiles::step : 0;
    float *p = at.p + j * tile, *ds = at.ds + j * tile;
    const float *lse = at.lse, *dot = at.dot;
#pragma omp simd
    for (std::int64_t i = first; i < lanes; ++i) {
      p[i] = vexp(p[i] - lse[i]);
      ds[i] = p[i] * (ds[i] - dot[i]);
    }
    if (diagonal) {
      std::fill(p + first, p + j, 0.0f);
      std::fill(ds + first, ds + j, 0.0f);
    }
  }
}

// Tile t of query head h: its dq, and what it adds to dk and dv, each [S, padded_dim].
template <class T>
void differentiate(const AttentionTiles& tiles, const Operands<T>& io, const float* packed,
                   const Scratch& at, std::int64_t b, std::int64_t h, std::int64_t t, float* dk,
                   float* dv) {
  const std::int64_t d = tiles.heads.head_dim, padded = tiles.padded_dim, q0 = t * tile;
  const std::int64_t count = std::min(tile, tiles.seq - q0), lanes = padded_to_vectors(count);
  const HeadColumns of_y{0, 0, tiles.heads.q_dim()};
  const float* k = tiles.packed_keys(packed, b, h / tiles.heads.group());
  const float* v = tiles.packed_values(packed, b, h / tiles.heads.group());
  tiles.load_tile(io.q, tiles.at.q, b, h, q0, tiles.heads.scale, at.q_rows);
  tiles.rotate_rows(at.q_rows, padded, q0, count, 1.0f);
  transpose(at.q_rows, padded, at.q, tile, lanes, padded);
  tiles.load_tile(io.dy, of_y, b, h, q0, 1.0f, at.dy_rows);
  transpose(at.dy_rows, padded, at.dy, tile, lanes, padded);
  std::fill_n(at.lse, tile, 0.0f);
  std::fill_n(at.dot, tile, 0.0f);
  std::copy_n(io.lse + (b * tiles.heads.n_heads + h) * tiles.seq + q0, count, at.lse);
  for (std::int64_t i = 0; i < count; ++i) {
    const T* y = tiles.vector_of(io.y, of_y, b, q0 + i, h);
    const float* dy = at.dy_rows + i * padded;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < d; ++c) dot += dy[c] * load(&y[c]);
    at.dot[i] = dot;
  }
  for (std::int64_t k0 = 0; k0 < tiles.keys_end(t); k0 += tile) {
    const std::int64_t keys = std::min(tile, tiles.seq - k0);
    const bool diagonal = tiles.diagonal(t, k0);
    tiles.times_queries(k + k0 * d, at.q, at.p, keys, lanes, diagonal);
    tiles.times_queries(v + k0 * d, at.dy, at.ds, keys, lanes, diagonal);
    probabilities(at, keys, lanes, diagonal);
    tiles.add_over_queries(at.p, at.dy_rows, dv + k0 * padded, keys, count, diagonal);
    tiles.add_over_queries(at.ds, at.q_rows, dk + k0 * padded, keys, count, diagonal);
    tiles.add_over_keys(k + k0 * d, at.ds, at.dq, keys, lanes, diagonal, k0 > 0);
  }
  for (std::int64_t i = 0; i < d * tile; ++i) at.dq[i] *= tiles.heads.scale;
  transpose(at.dq, tile, at.q_rows, padded, padded, lanes);
  tiles.rotate_rows(at.q_rows, padded, q0, count, -1.0f);
  tiles.store_rows(at.q_rows, padded, io.dq, tiles.at.q, b, h, q0, count);
}

// Adds the parts' sums for the keys [begin, end) of one key head into the first and stores them.
template <class T>
void add_parts(const AttentionTiles& tiles, const Operands<T>& io, float* sums, std::int64_t parts,
               std::int64_t b, std::int64_t kv, std::int64_t begin, std::int64_t end) {
  const std::int64_t padded = tiles.padded_dim, matrix = tiles.seq * padded;
  float *dk = sums, *dv = sums + matrix;
  for (std::int64_t part = 1; part < parts; ++part)
    for (std::int64_t i = begin * padded; i < end * padded; ++i) {
      dk[i] += sums[2 * part * matrix + i];
      dv[i] += sums[(2 * part + 1) * matrix + i];
    }
  // The scale is in the queries already that dk was summed over.
  float *dk0 = dk + begin * padded, *dv0 = dv + begin * padded;
  tiles.rotate_rows(dk0, padded, begin, end - begin, -1.0f);
  tiles.store_rows(dk0, padded, io.dk, tiles.at.k, b, kv, begin, end - begin);
  tiles.store_rows(dv0, padded, io.dv, tiles.at.v, b, kv, begin, end - begin);
}

template <class T>
Operands<T> operands_of(const AttentionLayout& at, const Launch& call) {
  return {.dy = call.in<T>(operand.dy),
          .y = call.in<T>(operand.y),
          .q = call.in<T>(operand.q + at.q.operand),
          .k = call.in<T>(operand.q + at.k.operand),
          .v = call.in<T>(operand.q + at.v.operand),
          .lse = call.in<float>(operand.lse),
          .dq = call.out<T>(at.q.operand),
          .dk = call.out<T>(at.k.operand),
          .dv = call.out<T>(at.v.operand)};
}

template <class T>
void backward(ThreadPool& pool, const AttentionTiles& tiles, const Partition& partition,
              const Launch& call) {
  const auto io = operands_of<T>(tiles.at, call);
  const std::int64_t kv_heads = tiles.heads.n_kv_heads, parts = partition.parts;
  auto* packed = static_cast<float*>(call.workspace);
  float* shared = packed + tiles.packed_floats();
  float* scratch = shared + partition.shared_floats();
  tiles.pack(pool, io.k, io.v, packed);
  run_with_scratch(pool, partition.key_heads * parts, scratch, partition.scratch_floats(tiles),
                   [&](std::int64_t task, float* memory) {
                     const std::int64_t part = task % parts, b = task / parts / kv_heads;
                     const std::int64_t kv = task / parts % kv_heads;
                     float* sums = parts > 1 ? shared + task * partition.sums_floats
                                             : memory + Scratch::floats(tiles.padded_dim);
                     std::fill_n(sums, partition.sums_floats, 0.0f);
                     for (std::int64_t i = partition.first_tile(part);
                          i < partition.first_tile(part + 1); ++i)
                       differentiate(tiles, io, packed, Scratch(memory, tiles.padded_dim), b,
                                     kv * tiles.heads.group() + i / tiles.tiles, i % tiles.tiles,
                                     sums, sums + partition.sums_floats / 2);
                     if (parts == 1) add_parts(tiles, io, sums, parts, b, kv, 0, tiles.seq);
                   });
  if (parts == 1) return;
  pool.run(partition.key_heads * tiles.tiles, [&](std::int64_t task) {
    const std::int64_t key_head = task / tiles.tiles, begin = task % tiles.tiles * tile;
    add_parts(tiles, io, shared + key_head * parts * partition.sums_floats, parts,
              key_head / kv_heads, key_head % kv_heads, begin, std::min(tiles.seq, begin + tile));
  });
}

template <class T>
KernelPtr prepare_backward(const AttentionGrad& op, CpuPrepare& prepare) {
  const AttentionTiles tiles(op, prepare, prepare.in.subspan(operand.q));
  const Partition partition(tiles);
  prepare.workspace =
      static_cast<std::size_t>(tiles.packed_floats() + partition.shared_floats() +
                               prepare.pool.size() * partition.scratch_floats(tiles)) *
      sizeof(float);
  return make_kernel([&pool = prepare.pool, tiles, partition](const Launch& call) {
    backward<T>(pool, tiles, partition, call);
  });
}

}  // namespace

KernelPtr AttentionGrad::cpu(CpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return prepare_backward<T>(*this, prepare); });
}

}  // namespace ridge
