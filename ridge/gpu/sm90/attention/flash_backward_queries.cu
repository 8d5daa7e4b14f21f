// Flash attention, backward: dQ. A block owns a tile of queries of one head and runs along the
// keys:
//   S = Q K^T;  P = exp(scale S - lse);  dP = dY V^T;  dS = P (dP - delta);  dQ += dS K
// with delta = rowsum(dY Y), which it computes first and leaves, with lse, for the kernel of dK and
// dV. The pipeline is that of query_pipeline.h; S, dP, dS and dQ never leave a warpgroup's
// registers. dQ += dS K of one key tile is issued together with S and dP of the next.

#include <cmath>

#include "ridge/gpu/sm90/attention/flash_backward.h"
#include "ridge/gpu/sm90/attention/query_pipeline.h"

namespace ridge::gpu::sm90 {
namespace {

// Scaled: see ScaledFlash.
template <class T, int HeadDim, int Keys, int Stages, bool Scaled>
struct QueryConfig {
  using Element = T;
  static constexpr bool scaled = Scaled;
  static constexpr int head_dim = HeadDim;
  static constexpr int keys = Keys;      // of one K or V tile
  static constexpr int stages = Stages;  // of the rings of K and V
  static constexpr int consumers = 2;    // warpgroups
  static constexpr int queries = warpgroup_rows * consumers;
  static constexpr int threads = warpgroup_threads * (consumers + 1);
  using QueryTile = Tile<T, warpgroup_rows, HeadDim>;
  using KeyTile = Tile<T, Keys, HeadDim>;
  static_assert(padded_rows % queries == 0);
};

template <class Config>
struct QueryShared {
  alignas(1024) unsigned char q[2][Config::consumers]
                               [Config::QueryTile::bytes];  // then dQ on its way out
  alignas(1024) unsigned char dy[2][Config::consumers][Config::QueryTile::bytes];
  alignas(1024) unsigned char y[Config::consumers][Config::QueryTile::bytes];
  alignas(1024) unsigned char k[Config::stages][Config::KeyTile::bytes];
  alignas(1024) unsigned char v[Config::stages][Config::KeyTile::bytes];
  std::uint64_t rows_full[2][Config::consumers];   // of q, dy and y
  std::uint64_t rows_empty[2][Config::consumers];  // of q and dy
  std::uint64_t y_empty[Config::consumers];
  std::uint64_t k_full[Config::stages], k_empty[Config::stages];
  std::uint64_t v_full[Config::stages], v_empty[Config::stages];
};

struct QueryWork {
  QueryBlocks blocks;
  int padded_seq;
  float scale, scale_log2;
  const float* lse;  // [batch, n_heads, seq]
  float2* stats;     // [batch, n_heads, padded_seq]
  const float2* rotation;
  // Scaled: of the operands and of dy; delta, [batch, n_heads, seq]; dq and its stride.
  const float *operand_scale, *dy_scale, *delta;
  float* dq;
  std::int64_t dq_stride;
};

struct QueryMaps {
  CUtensorMap q, k, v, y, dy, dq;
};

template <class Config, bool Causal>
__device__ void produce(QueryShared<Config>& shared, const QueryWork& work, const QueryMaps& maps) {
  using QueryTile = typename Config::QueryTile;
  Ring<Config::stages> ring;
  Ring<2> rows;
  Ring<1> y;
  const auto load_rows = [&](const QueryTileIndex& at) {
    for (int w = 0; w < Config::consumers; ++w) {
      std::uint64_t* full = &shared.rows_full[rows.stage][w];
      const int row = at.tile * Config::queries + w * warpgroup_rows;
      ptx::barrier_wait(&shared.rows_empty[rows.stage][w], rows.parity ^ 1);
      ptx::barrier_arrive_expect(full, (Config::scaled ? 2 : 3) * QueryTile::bytes);
      load_tile<QueryTile>(shared.q[rows.stage][w], &maps.q, full, row, at.head, at.batch);
      load_tile<QueryTile>(shared.dy[rows.stage][w], &maps.dy, full, row, at.head, at.batch);
      if constexpr (Config::scaled) continue;
      ptx::barrier_wait(&shared.y_empty[w], y.parity ^ 1);
      load_tile<QueryTile>(shared.y[w], &maps.y, full, row, at.head, at.batch);
    }
    rows.advance();
    y.advance();
  };
  BlockTiles mine(work.blocks.deck);
  load_rows(QueryTileIndex(work.blocks, mine));
  while (mine.more()) {
    load_keys<Config, Causal>(shared, ring, work.blocks, QueryTileIndex(work.blocks, mine), &maps.k,
                              &maps.v);
    // The rows of the next tile come while this one is under way.
    mine.advance();
    if (mine.more()) load_rows(QueryTileIndex(work.blocks, mine));
  }
}

// One consumer warpgroup: its 64 rows of every tile of this thread block.
template <class Config, bool Causal>
class Consumer : QueryConsumer<Config, Causal, QueryShared<Config>> {
  using Base = QueryConsumer<Config, Causal, QueryShared<Config>>;
  using typename Base::Element;
  using typename Base::Outputs;
  using typename Base::PackedScores;
  using typename Base::QueryTile;
  using typename Base::Scores;

 public:
  __device__ Consumer(QueryShared<Config>& shared, const QueryWork& work, int warpgroup)
      : Base(shared, work.blocks, warpgroup), work_(work) {
    if constexpr (Config::scaled)
      scale_log2_ = scale_of_scores(work.scale_log2, work.operand_scale);
  }

  __device__ void run(const QueryMaps& maps) {
    this->begin_turns();
    for (BlockTiles mine(work_.blocks.deck); mine.more(); mine.advance(), rows_.advance()) {
      const QueryTileIndex at(work_.blocks, mine);
      differentiate(at);
      write(at, &maps.dq);
    }
  }

 private:
  using Base::ring_;
  using Base::rows_;
  using Base::shared_;
  using Base::top;
  using Base::warpgroup_;

  __device__ float scale_log2() const { return Config::scaled ? scale_log2_ : work_.scale_log2; }

  // S = Q K^T and dP = dY V^T of the key tile in the rings.
  __device__ void issue_scores(Scores& s, Scores& dp) {
    Base::issue_scores(s, shared_.q[rows_.stage][warpgroup_], shared_.k[ring_.stage]);
    Base::issue_scores(dp, shared_.dy[rows_.stage][warpgroup_], shared_.v[ring_.stage]);
  }
  // dQ += dS K; the first of a tile overwrites.
  __device__ void issue_dq(int stage, bool accumulate) {
    this->issue_outputs(dq_, ds_, shared_.k[stage], accumulate);
  }

  // dS of one key tile, whose S and dP are under way, the only ones.
  template <bool Masked>
  __device__ void finish_scores(Scores& s, Scores& dp, int n, const QueryTileIndex& at) {
    ptx::wgmma_wait<1>();
    ptx::pin(s);
    if constexpr (Masked) this->mask(s, n, at);
#pragma unroll
    for (int i = 0; i < Config::keys / 2; ++i)
      s[i] = ptx::exp2(fmaf(s[i], scale_log2(), -lse_[i / 2 % 2]));
    ptx::wgmma_wait<0>();
    ptx::pin(dp);
    release(&shared_.v_empty[ring_.stage]);
#pragma unroll
    for (int i = 0; i < Config::keys / 2; ++i) {
      const float delta = delta_[i / 2 % 2];
      s[i] *= Config::scaled ? fmaf(dp[i], score_gradient_scale, -delta) : dp[i] - delta;
    }
    this->pack(ds_, s);
  }

  // The next key tile, with dQ += dS K of the one before.
  template <bool Masked>
  __device__ void next_keys(int n, const QueryTileIndex& at, bool accumulate) {
    const int before = ring_.stage;
    ring_.advance();
    Scores s, dp;
    ptx::barrier_wait(&shared_.k_full[ring_.stage], ring_.parity);
    ptx::barrier_wait(&shared_.v_full[ring_.stage], ring_.parity);
    this->wait_turn();
    issue_dq(before, accumulate);
    issue_scores(s, dp);
    this->pass_turn();
    ptx::wgmma_wait<2>();
    ptx::pin(dq_);
    release(&shared_.k_empty[before]);
    finish_scores<Masked>(s, dp, n, at);
  }

  __device__ void differentiate(const QueryTileIndex& at) {
    const int unmasked = this->unmasked_tiles(at), seen = this->own_tiles(at);
    this->skip_keys(at);
    {
      Scores s, dp;
      ptx::barrier_wait(&shared_.rows_full[rows_.stage][warpgroup_], rows_.parity);
      ptx::barrier_wait(&shared_.k_full[ring_.stage], ring_.parity);
      ptx::barrier_wait(&shared_.v_full[ring_.stage], ring_.parity);
      this->wait_turn();
      issue_scores(s, dp);
      this->pass_turn();
      prepare_rows(at);
      finish_scores<true>(s, dp, seen - 1, at);
    }
    int n = seen - 2;
    for (; n >= unmasked && n >= 0; --n) next_keys<true>(n, at, n < seen - 2);
    for (; n >= 0; --n) next_keys<false>(n, at, n < seen - 2);
    issue_dq(ring_.stage, seen > 1);
    release_stored();
    ptx::wgmma_wait<0>();
    ptx::pin(dq_);
    release(&shared_.k_empty[ring_.stage]);
    ring_.advance();
  }

  // lse_ and delta_ of this thread's two rows; leaves both in the workspace. Each row's 16-byte
  // chunks are dealt to the four threads that hold the row.
  __device__ void prepare_rows(const QueryTileIndex& at) {
    if constexpr (Config::scaled) return read_rows(at);
    const std::uint32_t y = ptx::shared_address(shared_.y[warpgroup_]);
    const std::uint32_t dy = ptx::shared_address(shared_.dy[rows_.stage][warpgroup_]);
    const std::int64_t head = static_cast<std::int64_t>(at.batch) * work_.blocks.n_heads + at.head;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int tile_row = first_row() + 8 * r, row = top(at) + tile_row;
      float sum = 0;
#pragma unroll
      for (int chunk = 0; chunk < Config::head_dim / 32; ++chunk) {
        const int at_chunk = 4 * chunk + static_cast<int>(threadIdx.x % 4);
        const uint4 a = ptx::load_chunk(QueryTile::chunk(y, tile_row, at_chunk));
        const uint4 b = ptx::load_chunk(QueryTile::chunk(dy, tile_row, at_chunk));
        sum += ptx::dot<Element>(a.x, b.x) + ptx::dot<Element>(a.y, b.y) +
               ptx::dot<Element>(a.z, b.z) + ptx::dot<Element>(a.w, b.w);
      }
      delta_[r] = row_sum(sum);
      lse_[r] =
          row < work_.blocks.seq ? work_.lse[head * work_.blocks.seq + row] * log2e : INFINITY;
      if (threadIdx.x % 4 == 0)
        work_.stats[head * work_.padded_seq + row] = float2{lse_[r], delta_[r]};
    }
    release(&shared_.y_empty[warpgroup_]);
  }

  // The same with delta as it was given, to the units of dS. One scale at a time: that of nothing
  // but zeros is tiny.
  __device__ void read_rows(const QueryTileIndex& at) {
    const std::int64_t head = static_cast<std::int64_t>(at.batch) * work_.blocks.n_heads + at.head;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = top(at) + first_row() + 8 * r;
      const bool inside = row < work_.blocks.seq;
      const std::int64_t from = head * work_.blocks.seq + row;
      lse_[r] = inside ? work_.lse[from] * log2e : INFINITY;
      delta_[r] =
          inside ? work_.delta[from] / *work_.dy_scale * score_gradient_scale / *work_.operand_scale
                 : 0.0f;
      if (threadIdx.x % 4 == 0)
        work_.stats[head * work_.padded_seq + row] =
            float2{lse_[r] - probability_shift, delta_[r] * exp2f(-probability_shift)};
    }
  }

  // dQ leaves through the buffer of Q, or in f32 from the registers.
  __device__ void write(const QueryTileIndex& at, const CUtensorMap* dq_map) {
    if (work_.rotation != nullptr)
      rotate_back(dq_, work_.rotation, top(at) + first_row(), work_.blocks.seq);
    this->sync();  // all warps are done with Q
    storing_ = true;
    if constexpr (Config::scaled) {
      const float factor = work_.scale / score_gradient_scale * *work_.dy_scale *
                           *work_.operand_scale * *work_.operand_scale;
      store_f32(
          work_.dq + at.batch * work_.blocks.seq * work_.dq_stride + at.head * Config::head_dim,
          work_.dq_stride, top(at) + first_row(), work_.blocks.seq, dq_, factor, factor);
      return;
    }
    this->store_rows(at, dq_map, shared_.q[rows_.stage][warpgroup_], dq_, work_.scale, work_.scale);
  }

  // The buffers of the tile before, when its dQ has left them.
  __device__ void release_stored() {
    if (!storing_ || !this->leads()) return;
    ptx::store_wait_read<0>();
    ptx::barrier_arrive(&shared_.rows_empty[rows_.stage ^ 1][warpgroup_]);
  }

  const QueryWork& work_;
  float scale_log2_ = 0;  // of scaled operands
  bool storing_ = false;
  float lse_[2], delta_[2];  // of this thread's rows; lse in powers of two
  Outputs dq_;
  PackedScores ds_;
};

template <class Config, bool Causal>
__global__ void __launch_bounds__(Config::threads, 1)
    backward_queries_kernel(const __grid_constant__ QueryMaps maps, const QueryWork work) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<QueryShared<Config>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::consumers; ++i) {
      for (int stage = 0; stage < 2; ++stage) {
        ptx::barrier_init(&shared.rows_full[stage][i], 1);
        ptx::barrier_init(&shared.rows_empty[stage][i], 1);
      }
      ptx::barrier_init(&shared.y_empty[i], warpgroup_releases);
    }
    init_key_rings<Config>(shared);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  take_roles<24, 240>([&] { produce<Config, Causal>(shared, work, maps); },
                      [&](int warpgroup) {
                        Consumer<Config, Causal>(shared, work, warpgroup).run(maps);
                        if (threadIdx.x % warpgroup_threads == 0) ptx::store_wait<0>();
                      });
}

template <class Config, bool Causal>
void launch(const BackwardCall& call, float2* stats) {
  const FlashShape& shape = call.shape;
  const auto map = [&](const void* base, std::int64_t heads, std::int64_t stride, int box) {
    return head_map(shape.dtype, base, shape.batch, shape.seq, heads, shape.head_dim, stride, box);
  };
  const std::int64_t dense = shape.n_heads * shape.head_dim;
  const QueryMaps maps{map(call.operands.q, shape.n_heads, call.operands.q_stride, warpgroup_rows),
                       map(call.operands.k, shape.n_kv_heads, call.operands.k_stride, Config::keys),
                       map(call.operands.v, shape.n_kv_heads, call.operands.v_stride, Config::keys),
                       map(Config::scaled ? call.dy : call.y, shape.n_heads, dense, warpgroup_rows),
                       map(call.dy, shape.n_heads, dense, warpgroup_rows),
                       map(Config::scaled ? call.dy : call.gradients.dq, shape.n_heads,
                           Config::scaled ? dense : call.gradients.dq_stride, warpgroup_rows)};
  const QueryWork work{QueryBlocks(shape, Config::queries),
                       static_cast<int>(padded_seq(shape)),
                       shape.scale,
                       shape.scale * log2e,
                       call.lse,
                       stats,
                       reinterpret_cast<const float2*>(call.gradients.rotation),
                       call.scale,
                       call.dy_scale,
                       call.delta,
                       static_cast<float*>(call.gradients.dq),
                       call.gradients.dq_stride};
  launch_queries<Config, QueryShared<Config>>(backward_queries_kernel<Config, Causal>, work.blocks,
                                              call.stream, maps, work);
  check(last_error(), "flash attention, backward: dq");
}

template <class Config>
void launch(const BackwardCall& call, float2* stats) {
  if (call.shape.causal)
    launch<Config, true>(call, stats);
  else
    launch<Config, false>(call, stats);
}

template <class T, bool Scaled>
void launch_of(const BackwardCall& call, float2* stats) {
  if (call.shape.head_dim == 128)
    launch<QueryConfig<T, 128, 64, 2, Scaled>>(call, stats);
  else if (call.shape.head_dim == 64)
    launch<QueryConfig<T, 64, 128, 3, Scaled>>(call, stats);
  else
    launch<QueryConfig<T, 32, 128, 3, Scaled>>(call, stats);
}

}  // namespace

void backward_queries(const BackwardCall& call, float2* stats) {
  if (call.scaled()) return launch_of<Float16, true>(call, stats);
  dispatch_16_bit(call.shape.dtype, [&]<class T>() { launch_of<T, false>(call, stats); });
}

}  // namespace ridge::gpu::sm90
