// Flash attention, backward: dK and dV. A block owns a tile of keys of one key head, and for each
// query head that shares it runs along the queries, everything transposed so that keys are rows:
//   S^T = K Q^T;  P^T = exp(scale S^T - lse);  dP^T = V dY^T;  dS^T = P^T (dP^T - delta)
//   dV += P^T dY;  dK += dS^T Q
// dK and dV stay in registers, and P^T and dS^T are operands straight from there. One producer warp
// feeds rings of Q and dY tiles; each of two consumer warpgroups owns 64 keys.
//
// With `Sum` the blocks also add their share of dQ, dS K, into a float workspace whose layout is
// that of the accumulators, and a last kernel scales and rounds it (flash_backward_sum.cu): five
// products instead of the seven of two separate passes, for the price of the workspace's traffic,
// of an exchange of dS between the warpgroups, and of the order of the sum.

#include <algorithm>
#include <cmath>

#include "ridge/gpu/device/runtime.h"
#include "ridge/gpu/sm90/attention/flash_backward.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/roles.h"
#include "ridge/gpu/sm90/tensor_map.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int consumers = 2;  // warpgroups
constexpr int block_keys = consumers * warpgroup_rows;

// EarlyDv: dV += P^T dY is issued before dS is computed, so that the two overlap. LateDk: dK +=
// dS^T Q is waited for only in the next step, so that the tensor cores have work until its products
// come. Both cost registers.
template <class T, int HeadDim, int Queries, int Stages, bool EarlyDv, bool LateDk, bool Sum,
          bool Scaled = false>
struct KeyConfig {
  using Element = T;
  static constexpr bool scaled = Scaled;  // see ScaledFlash
  static constexpr int head_dim = HeadDim;
  static constexpr int queries = Queries;  // of one Q or dY tile
  static constexpr int stages = Stages;    // of the rings of Q and dY
  static constexpr bool early_dv = EarlyDv;
  static constexpr bool late_dk = LateDk;
  static constexpr bool sum = Sum;  // dQ too
  static constexpr int threads = warpgroup_threads * (consumers + 1);
  // A warpgroup's share of dQ is 64 rows of it if there are 128, else half of its columns.
  static constexpr bool split_columns = Queries == warpgroup_rows;
  static constexpr int dq_columns = split_columns ? HeadDim / 2 : HeadDim;
  using QueryTile = Tile<T, Queries, HeadDim>;
  using KeyTile = Tile<T, block_keys, HeadDim>;
  using ScoreTile = Tile<T, block_keys, Queries>;  // dS^T
};

template <class Config>
struct KeyShared {
  alignas(1024) unsigned char k[2][Config::KeyTile::bytes];  // then dK on its way out
  alignas(1024) unsigned char v[2][Config::KeyTile::bytes];  // then dV
  alignas(1024) unsigned char q[Config::stages][Config::QueryTile::bytes];
  alignas(1024) unsigned char dy[Config::stages][Config::QueryTile::bytes];
  alignas(1024) unsigned char ds[Config::sum ? 2 : 1][Config::sum ? Config::ScoreTile::bytes : 1];
  alignas(16) float2 stats[Config::stages][Config::queries];  // lse log2(e), delta
  std::uint64_t keys_full[2], keys_empty[2];
  std::uint64_t q_full[Config::stages], q_empty[Config::stages];
  std::uint64_t dy_full[Config::stages], dy_empty[Config::stages];
};

struct KeyWork {
  int seq, padded_seq, n_heads, n_kv_heads;
  TileDeck deck;  // of key tiles
  float scale, scale_log2;
  const float2* stats;  // [batch, n_heads, padded_seq]: lse log2(e), delta
  float* dq;            // [batch, n_heads, padded_seq / queries][queries * head_dim]; Sum only
  const float2* rotation;
  // Scaled: of the operands and of dy; results, and the strides of their rows.
  const float *operand_scale, *dy_scale;
  float *dk, *dv;
  std::int64_t dk_stride, dv_stride;
};

struct KeyTileIndex {
  int tile, kv_head, batch;
  __device__ KeyTileIndex(const KeyWork& work, const BlockTiles& at)
      : tile(at.rank()), kv_head(at.head() % work.n_kv_heads), batch(at.head() / work.n_kv_heads) {}
};

// The query tiles a block runs along: those of each query head of its key head in turn.
template <class Config, bool Causal>
struct QueryTiles {
  int head, tile, first, end, last_head;
  __device__ QueryTiles(const KeyWork& work, const KeyTileIndex& at) {
    const int group = work.n_heads / work.n_kv_heads;
    head = at.kv_head * group;
    last_head = head + group - 1;
    first = Causal ? at.tile * block_keys / Config::queries : 0;
    end = (work.seq + Config::queries - 1) / Config::queries;
    tile = first;
  }
  __device__ bool more() const { return head <= last_head; }
  __device__ void advance() {
    if (++tile == end) {
      tile = first;
      ++head;
    }
  }
};

template <class Config, bool Causal>
__device__ void produce(KeyShared<Config>& shared, const KeyWork& work, const CUtensorMap* q_map,
                        const CUtensorMap* k_map, const CUtensorMap* v_map,
                        const CUtensorMap* dy_map) {
  using QueryTile = typename Config::QueryTile;
  using KeyTile = typename Config::KeyTile;
  constexpr std::uint32_t stats_bytes = Config::queries * sizeof(float2);
  Ring<2> keys;
  Ring<Config::stages> ring;
  bool waited = false;
  for (BlockTiles mine(work.deck); mine.more(); mine.advance(), keys.advance()) {
    const KeyTileIndex at(work, mine);
    const int key = at.tile * block_keys;
    std::uint64_t* full = &shared.keys_full[keys.stage];
    ptx::barrier_wait(&shared.keys_empty[keys.stage], keys.parity ^ 1);
    ptx::barrier_arrive_expect(full, 2 * KeyTile::bytes);
    load_tile<KeyTile>(shared.k[keys.stage], k_map, full, key, at.kv_head, at.batch);
    load_tile<KeyTile>(shared.v[keys.stage], v_map, full, key, at.kv_head, at.batch);
    for (QueryTiles<Config, Causal> queries(work, at); queries.more();
         queries.advance(), ring.advance()) {
      const int row = queries.tile * Config::queries;
      full = &shared.q_full[ring.stage];
      ptx::barrier_wait(&shared.q_empty[ring.stage], ring.parity ^ 1);
      ptx::barrier_arrive_expect(full, QueryTile::bytes + stats_bytes);
      load_tile<QueryTile>(shared.q[ring.stage], q_map, full, row, queries.head, at.batch);
      const std::int64_t head = static_cast<std::int64_t>(at.batch) * work.n_heads + queries.head;
      if (!waited) wait_for_previous();  // for the row statistics, and for dQ to be zeroed
      waited = true;
      ptx::load_bytes(shared.stats[ring.stage], work.stats + head * work.padded_seq + row,
                      stats_bytes, full);
      full = &shared.dy_full[ring.stage];
      ptx::barrier_wait(&shared.dy_empty[ring.stage], ring.parity ^ 1);
      ptx::barrier_arrive_expect(full, QueryTile::bytes);
      load_tile<QueryTile>(shared.dy[ring.stage], dy_map, full, row, queries.head, at.batch);
    }
  }
}

// One consumer warpgroup: 64 keys.
template <class Config, bool Causal>
class Consumer {
  using Element = typename Config::Element;
  using QueryTile = typename Config::QueryTile;
  using KeyTile = typename Config::KeyTile;
  using ScoreTile = typename Config::ScoreTile;
  static constexpr int queries = Config::queries;
  static constexpr int head_dim = Config::head_dim;
  static constexpr bool early_dv = Config::early_dv, late_dk = Config::late_dk;

 public:
  __device__ Consumer(KeyShared<Config>& shared, const KeyWork& work, int warpgroup)
      : shared_(shared), work_(work), warpgroup_(warpgroup) {
    if constexpr (Config::scaled)
      scale_log2_ = scale_of_scores(work.scale_log2, work.operand_scale);
  }

  __device__ void run(const CUtensorMap* dk_map, const CUtensorMap* dv_map) {
    bool storing = false;
    for (BlockTiles mine(work_.deck); mine.more(); mine.advance(), keys_.advance()) {
      const KeyTileIndex at(work_, mine);
      previous_ = -1;
      ptx::barrier_wait(&shared_.keys_full[keys_.stage], keys_.parity);
      for (QueryTiles<Config, Causal> queries(work_, at); queries.more(); queries.advance()) {
        step(at, queries);
        previous_ = ring_.stage;
        ring_.advance();
        if (storing) release_stored();
        storing = false;
      }
      ptx::wgmma_wait<0>();
      ptx::pin(dk_);
      if constexpr (Config::late_dk) release(&shared_.q_empty[previous_]);
      write(at, dk_map, dv_map);
      storing = true;
    }
  }

 private:
  __device__ float scale_log2() const { return Config::scaled ? scale_log2_ : work_.scale_log2; }

  // dK and dV leave through the buffers of K and V, once nobody reads those.
  __device__ void write(const KeyTileIndex& at, const CUtensorMap* dk_map,
                        const CUtensorMap* dv_map) {
    if (work_.rotation != nullptr)
      rotate_back(dk_, work_.rotation,
                  at.tile * block_keys + warpgroup_ * warpgroup_rows + first_row(), work_.seq);
    if constexpr (Config::sum)
      ptx::named_sync(1, consumers * warpgroup_threads);
    else
      ptx::named_sync(2 + warpgroup_, warpgroup_threads);
    if constexpr (Config::scaled) return write_f32(at);
    const int first = warpgroup_ * warpgroup_rows;
    unsigned char* const k = shared_.k[keys_.stage];
    unsigned char* const v = shared_.v[keys_.stage];
    store_accumulators<KeyTile>(ptx::shared_address(k), first, dk_, work_.scale, work_.scale);
    store_accumulators<KeyTile>(ptx::shared_address(v), first, dv_, 1, 1);
    ptx::fence_shared_for_async();
    ptx::named_sync(2 + warpgroup_, warpgroup_threads);
    if (threadIdx.x % warpgroup_threads != 0) return;
    for (int panel = 0; panel < KeyTile::panels; ++panel) {
      const int offset = panel * KeyTile::panel_bytes + first * KeyTile::row_bytes;
      const int column = panel * KeyTile::panel_columns, row = at.tile * block_keys + first;
      ptx::store_box(dk_map, k + offset, column, row, at.kv_head, at.batch);
      ptx::store_box(dv_map, v + offset, column, row, at.kv_head, at.batch);
    }
    ptx::store_commit();
  }

  __device__ void write_f32(const KeyTileIndex& at) {
    const int row = at.tile * block_keys + warpgroup_ * warpgroup_rows + first_row();
    const std::int64_t first = static_cast<std::int64_t>(at.batch) * work_.seq;
    const int column = at.kv_head * head_dim;
    const float of_v = *work_.dy_scale * exp2f(-probability_shift);
    const float of_k = work_.scale / score_gradient_scale * *work_.dy_scale * *work_.operand_scale *
                       *work_.operand_scale;
    store_f32(work_.dk + first * work_.dk_stride + column, work_.dk_stride, row, work_.seq, dk_,
              of_k, of_k);
    store_f32(work_.dv + first * work_.dv_stride + column, work_.dv_stride, row, work_.seq, dv_,
              of_v, of_v);
  }

  // The buffers of the tile before, when its gradients have left them.
  __device__ void release_stored() {
    if (threadIdx.x % warpgroup_threads != 0) return;
    ptx::store_wait_read<0>();
    ptx::barrier_arrive(&shared_.keys_empty[keys_.stage ^ 1]);
  }

  // d = rows [64, head_dim] of this warpgroup's keys times columns^T.
  __device__ void issue_transposed(float (&d)[queries / 2], const unsigned char* keys,
                                   const unsigned char* columns) {
    const std::uint32_t a = ptx::shared_address(keys), b = ptx::shared_address(columns);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < head_dim / 16; ++step)
      ptx::wgmma<Element, queries, false, false>(
          d, KeyTile::along_columns(a, step, warpgroup_ * warpgroup_rows),
          QueryTile::along_columns(b, step), step != 0);
    ptx::wgmma_commit();
  }
  __device__ void issue_scores(float (&s)[queries / 2], int stage) {
    issue_transposed(s, shared_.k[keys_.stage], shared_.q[stage]);
  }

  // d += a rows, with rows [queries, head_dim].
  __device__ void issue_gradient(float (&d)[head_dim / 2],
                                 const std::uint32_t (&a)[queries / 16][4],
                                 const unsigned char* rows, bool accumulate) {
    const std::uint32_t b = ptx::shared_address(rows);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < queries / 16; ++step)
      ptx::wgmma<Element, head_dim, true>(d, a[step], QueryTile::along_rows(b, step),
                                          step > 0 || accumulate);
    ptx::wgmma_commit();
  }

  // dq = this warpgroup's share of dS K.
  __device__ void issue_dq(float (&dq)[Config::dq_columns / 2], int buffer) {
    const std::uint32_t a = ptx::shared_address(shared_.ds[buffer]);
    const std::uint32_t b = ptx::shared_address(shared_.k[keys_.stage]);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < block_keys / 16; ++step)
      ptx::wgmma<Element, Config::dq_columns, true, true>(
          dq,
          ScoreTile::along_rows(a, step, Config::split_columns ? 0 : warpgroup_ * warpgroup_rows),
          KeyTile::along_rows(b, step, Config::split_columns ? warpgroup_ * Config::dq_columns : 0),
          step != 0);
    ptx::wgmma_commit();
  }

  // Probabilities of keys after the query or past the end are zero.
  __device__ void mask(float (&p)[queries / 2], const KeyTileIndex& at, int query_tile) {
    const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
    const int key = at.tile * block_keys + warpgroup_ * warpgroup_rows + warp * 16 + lane / 4;
    const int query = query_tile * queries + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < queries / 2; ++i) {
      const int row = key + i / 2 % 2 * 8;
      if (row >= work_.seq || (Causal && row > query + i / 4 * 8 + i % 2)) p[i] = 0;
    }
  }

  // P^T from S^T. stats[i] is (lse, delta) of the queries of elements i and i + 1, and of i + 2 and
  // i + 3, which are the same.
  __device__ void to_probabilities(float (&s)[queries / 2], const float4* stats) {
#pragma unroll
    for (int i = 0; i < queries / 2; i += 4) {
      const float4 pair = stats[i];
#pragma unroll
      for (int r = 0; r < 4; r += 2) {
        s[i + r] = ptx::exp2(fmaf(s[i + r], scale_log2(), -pair.x));
        s[i + r + 1] = ptx::exp2(fmaf(s[i + r + 1], scale_log2(), -pair.z));
      }
    }
  }

  __device__ static float centered(float dp, float delta) {
    if constexpr (!Config::scaled) return dp - delta;
    constexpr float down = score_gradient_scale / (1 << static_cast<int>(probability_shift));
    return fmaf(dp, down, -delta);
  }

  // dS^T from dP^T.
  __device__ void to_score_gradients(float (&dp)[queries / 2], const float (&p)[queries / 2],
                                     const float4* stats) {
#pragma unroll
    for (int i = 0; i < queries / 2; i += 4) {
      const float4 pair = stats[i];
#pragma unroll
      for (int r = 0; r < 4; r += 2) {
        dp[i + r] = p[i + r] * centered(dp[i + r], pair.y);
        dp[i + r + 1] = p[i + r + 1] * centered(dp[i + r + 1], pair.w);
      }
    }
  }

  // One query tile. It leaves dK += dS^T Q under way, for the tensor cores to work on until the
  // next tile's products come.
  __device__ void step(const KeyTileIndex& at, const QueryTiles<Config, Causal>& tiles) {
    const int stage = ring_.stage;
    const std::uint32_t parity = ring_.parity;
    const auto* stats = reinterpret_cast<const float4*>(shared_.stats[stage]) + threadIdx.x % 4;
    std::uint32_t p[queries / 16][4], ds[queries / 16][4];
    {
      float s[queries / 2], dp[queries / 2];
      ptx::barrier_wait(&shared_.q_full[stage], parity);
      issue_scores(s, stage);
      ptx::barrier_wait(&shared_.dy_full[stage], parity);
      issue_transposed(dp, shared_.v[keys_.stage], shared_.dy[stage]);
      ptx::wgmma_wait<1>();
      ptx::pin(s);
      if constexpr (late_dk) {
        ptx::pin(dk_);
        if (previous_ >= 0) release(&shared_.q_empty[previous_]);
      }
      to_probabilities(s, stats);
      const int key_end = (at.tile + 1) * block_keys;
      if ((Causal && tiles.tile * queries < key_end - 1) || key_end > work_.seq)
        mask(s, at, tiles.tile);
#pragma unroll
      for (int step = 0; step < queries / 16; ++step) pack_step<Element>(p[step], s, step);
      if constexpr (early_dv) {
        issue_gradient(dv_, p, shared_.dy[stage], previous_ >= 0);
        ptx::wgmma_wait<1>();
      } else {
        ptx::wgmma_wait<0>();
      }
      ptx::pin(dp);
      to_score_gradients(dp, s, stats);
#pragma unroll
      for (int step = 0; step < queries / 16; ++step) pack_step<Element>(ds[step], dp, step);
    }
    if constexpr (!early_dv) issue_gradient(dv_, p, shared_.dy[stage], previous_ >= 0);
    if constexpr (Config::sum) {
      exchange(ds);
      float dq[Config::dq_columns / 2];
      issue_dq(dq, buffer_);
      buffer_ ^= 1;
      issue_gradient(dk_, ds, shared_.q[stage], previous_ >= 0);
      ptx::wgmma_wait<1>();
      ptx::pin(dq);
      ptx::pin(dv_);
      release(&shared_.dy_empty[stage]);
      add_dq(dq, at, tiles);
    } else {
      issue_gradient(dk_, ds, shared_.q[stage], previous_ >= 0);
      ptx::wgmma_wait<1>();
      ptx::pin(dv_);
      release(&shared_.dy_empty[stage]);
    }
    if constexpr (!late_dk) {
      ptx::wgmma_wait<0>();
      ptx::pin(dk_);
      release(&shared_.q_empty[stage]);
    }
  }

  // dS^T of this warpgroup's keys goes to shared memory; returns when the others' is there too.
  // Nobody reads the buffer any more: its last readers have passed the barrier after it.
  __device__ void exchange(const std::uint32_t (&ds)[queries / 16][4]) {
    const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads % 4;
    const std::uint32_t tile = ptx::shared_address(shared_.ds[buffer_]);
    const int row = warpgroup_ * warpgroup_rows + warp * 16 + (lane & 15);
#pragma unroll
    for (int step = 0; step < queries / 16; ++step)
      ptx::store_matrices(ScoreTile::chunk(tile, row, 2 * step + (lane >> 4)), ds[step][0],
                          ds[step][1], ds[step][2], ds[step][3]);
    ptx::fence_shared_for_async();
    ptx::named_sync(1, consumers * warpgroup_threads);
  }

  // Workspace += dq, accumulator i of thread t at 512 (i / 4) + 4 t + i % 4 of the warpgroup's
  // part.
  __device__ void add_dq(const float (&dq)[Config::dq_columns / 2], const KeyTileIndex& at,
                         const QueryTiles<Config, Causal>& tiles) {
    const int thread = threadIdx.x % warpgroup_threads;
    const int head_tiles = work_.padded_seq / queries;
    const std::int64_t tile =
        (static_cast<std::int64_t>(at.batch) * work_.n_heads + tiles.head) * head_tiles +
        tiles.tile;
    float* to =
        work_.dq + (tile * consumers + warpgroup_) * (queries * head_dim / consumers) + 4 * thread;
#pragma unroll
    for (int i = 0; i < Config::dq_columns / 2; i += 4)
      ptx::reduce_add(to + i * warpgroup_threads, dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
  }

  KeyShared<Config>& shared_;
  const KeyWork& work_;
  const int warpgroup_;
  float scale_log2_ = 0;  // of scaled operands
  Ring<2> keys_;
  Ring<Config::stages> ring_;
  int buffer_ = 0;     // of ds
  int previous_ = -1;  // the stage of the query tile before, whose dK product may be under way
  // Both are set by their first product: ptxas serializes products whose accumulators are set
  // otherwise when they are under way from one turn of a loop to the next.
  float dk_[head_dim / 2], dv_[head_dim / 2];
};

template <class Config, bool Causal>
__global__ void __launch_bounds__(Config::threads, 1)
    backward_keys_kernel(const __grid_constant__ CUtensorMap q_map,
                         const __grid_constant__ CUtensorMap k_map,
                         const __grid_constant__ CUtensorMap v_map,
                         const __grid_constant__ CUtensorMap dy_map,
                         const __grid_constant__ CUtensorMap dk_map,
                         const __grid_constant__ CUtensorMap dv_map, const KeyWork work) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<KeyShared<Config>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::barrier_init(&shared.keys_full[i], 1);
      ptx::barrier_init(&shared.keys_empty[i], consumers);
    }
    for (int i = 0; i < Config::stages; ++i) {
      ptx::barrier_init(&shared.q_full[i], 1);
      ptx::barrier_init(&shared.q_empty[i], consumers * warpgroup_releases);
      ptx::barrier_init(&shared.dy_full[i], 1);
      ptx::barrier_init(&shared.dy_empty[i], consumers * warpgroup_releases);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  take_roles<24, 240>(
      [&] { produce<Config, Causal>(shared, work, &q_map, &k_map, &v_map, &dy_map); },
      [&](int warpgroup) {
        Consumer<Config, Causal>(shared, work, warpgroup).run(&dk_map, &dv_map);
        if (threadIdx.x % warpgroup_threads == 0) ptx::store_wait<0>();
      });
}

template <class Config, bool Causal>
void launch(const BackwardCall& call, const float2* stats, float* dq) {
  const FlashShape& shape = call.shape;
  const auto map = [&](const void* base, std::int64_t heads, std::int64_t stride, int box) {
    return head_map(shape.dtype, base, shape.batch, shape.seq, heads, shape.head_dim, stride, box);
  };
  const CUtensorMap q =
      map(call.operands.q, shape.n_heads, call.operands.q_stride, Config::queries);
  const CUtensorMap k = map(call.operands.k, shape.n_kv_heads, call.operands.k_stride, block_keys);
  const CUtensorMap v = map(call.operands.v, shape.n_kv_heads, call.operands.v_stride, block_keys);
  const CUtensorMap dy =
      map(call.dy, shape.n_heads, shape.n_heads * shape.head_dim, Config::queries);
  // Results in f32 are stored from registers, not by the copy engine.
  const FlashGradients& to = call.gradients;
  const CUtensorMap dk =
      Config::scaled ? k : map(to.dk, shape.n_kv_heads, to.dk_stride, warpgroup_rows);
  const CUtensorMap dv =
      Config::scaled ? k : map(to.dv, shape.n_kv_heads, to.dv_stride, warpgroup_rows);

  KeyWork work{};
  work.seq = static_cast<int>(shape.seq);
  work.padded_seq = static_cast<int>(padded_seq(shape));
  work.n_heads = static_cast<int>(shape.n_heads);
  work.n_kv_heads = static_cast<int>(shape.n_kv_heads);
  work.deck = {(work.seq + block_keys - 1) / block_keys,
               static_cast<int>(shape.n_kv_heads * shape.batch), shape.causal};
  work.scale = shape.scale;
  work.scale_log2 = shape.scale * log2e;
  work.stats = stats;
  work.dq = dq;
  work.rotation = reinterpret_cast<const float2*>(call.gradients.rotation);
  if constexpr (Config::scaled) {
    work.operand_scale = call.scale;
    work.dy_scale = call.dy_scale;
    work.dk = static_cast<float*>(to.dk), work.dk_stride = to.dk_stride;
    work.dv = static_cast<float*>(to.dv), work.dv_stride = to.dv_stride;
  }

  constexpr std::size_t bytes = sizeof(KeyShared<Config>);
  const auto kernel = backward_keys_kernel<Config, Causal>;
  allow_shared_memory(kernel, bytes);
  const dim3 blocks(static_cast<unsigned>(std::min(multiprocessors(), work.deck.units())));
  launch_early(kernel, blocks, Config::threads, bytes, call.stream, q, k, v, dy, dk, dv, work);
  check(last_error(), "flash attention, backward: dk, dv");
}

template <class Config>
void launch(const BackwardCall& call, const float2* stats, float* dq) {
  if (call.shape.causal)
    launch<Config, true>(call, stats, dq);
  else
    launch<Config, false>(call, stats, dq);
}

template <class T, bool Scaled>
void launch_of(const BackwardCall& call, const float2* stats) {
  if (call.shape.head_dim == 128)
    launch<KeyConfig<T, 128, 64, 2, true, true, false, Scaled>>(call, stats, nullptr);
  else if (call.shape.head_dim == 64)
    launch<KeyConfig<T, 64, 128, 2, true, false, false, Scaled>>(call, stats, nullptr);
  else
    launch<KeyConfig<T, 32, 128, 2, true, true, false, Scaled>>(call, stats, nullptr);
}

}  // namespace

void backward_keys(const BackwardCall& call, const float2* stats) {
  if (call.scaled()) return launch_of<Float16, true>(call, stats);
  dispatch_16_bit(call.shape.dtype, [&]<class T>() { launch_of<T, false>(call, stats); });
}

void backward_summed(const BackwardCall& call, float2* stats, float* dq) {
  prepare_sum(call, stats, dq);
  dispatch_16_bit(call.shape.dtype, [&]<class T>() {
    if (call.shape.head_dim == 128)
      launch<KeyConfig<T, 128, summed_queries(128), 2, true, true, true>>(call, stats, dq);
    else if (call.shape.head_dim == 64)
      launch<KeyConfig<T, 64, summed_queries(64), 2, true, false, true>>(call, stats, dq);
    else
      launch<KeyConfig<T, 32, summed_queries(32), 2, true, true, true>>(call, stats, dq);
  });
  finish_sum(call, dq);
}

}  // namespace ridge::gpu::sm90
