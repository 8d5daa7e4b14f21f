// Flash attention, forward. A block owns a tile of queries of one head and runs along the keys:
//   S = Q K^T;  m' = max(m, rowmax(scale S));  P = exp(scale S - m');
//   l = l exp(m - m') + rowsum(P);  O = O exp(m - m') + P V;  at the end y = O / l, lse = m + ln(l)
// (in powers of two, with scale log2(e) folded in).
//
// The pipeline is that of query_pipeline.h; S, P and O never leave a warpgroup's registers. S of
// the next key tile is issued before P V of this one, and its softmax runs beside that product. The
// queries of the next tile are loaded during this one, and its first product is issued with the
// last of this one.

#include <cmath>

#include "ridge/gpu/sm90/attention/flash_short.h"
#include "ridge/gpu/sm90/attention/flash_whole.h"
#include "ridge/gpu/sm90/attention/query_pipeline.h"

namespace ridge::gpu::sm90 {
namespace {

// Scaled: see ScaledFlash.
template <class T, int HeadDim, int Keys, int Consumers, int Stages, bool Scaled = false>
struct ForwardConfig {
  using Element = T;
  static constexpr bool scaled = Scaled;
  static constexpr int head_dim = HeadDim;
  static constexpr int keys = Keys;            // of one K or V tile
  static constexpr int consumers = Consumers;  // warpgroups
  static constexpr int stages = Stages;        // of the rings of K and V
  static constexpr int queries = warpgroup_rows * Consumers;
  static constexpr int threads = warpgroup_threads * (Consumers + 1);
  static constexpr int consumer_registers = Consumers == 2 ? 240 : 160;
  static constexpr int producer_registers = Consumers == 2 ? 24 : 32;
  using QueryTile = Tile<T, warpgroup_rows, HeadDim>;
  using KeyTile = Tile<T, Keys, HeadDim>;
  // A warpgroup that passes over keys still holds the values of the tile before.
  static_assert((Consumers - 1) * warpgroup_rows <= (Stages - 1) * Keys);
};

template <class Config>
struct ForwardShared {
  alignas(1024) unsigned char q[2][Config::consumers][Config::QueryTile::bytes];
  alignas(1024) unsigned char y[Config::consumers][Config::QueryTile::bytes];
  alignas(1024) unsigned char k[Config::stages][Config::KeyTile::bytes];
  alignas(1024) unsigned char v[Config::stages][Config::KeyTile::bytes];
  std::uint64_t q_full[2][Config::consumers], q_empty[2][Config::consumers];
  std::uint64_t k_full[Config::stages], k_empty[Config::stages];
  std::uint64_t v_full[Config::stages], v_empty[Config::stages];
};

struct ForwardWork {
  QueryBlocks blocks;
  float scale_log2;  // scale log2(e)
  float* lse;        // [batch, n_heads, seq]
  // Scaled: of the operands; and y.
  const float* scale = nullptr;
  float* y = nullptr;
};

template <class Config, bool Causal>
__device__ void produce(ForwardShared<Config>& shared, const ForwardWork& work,
                        const CUtensorMap* q_map, const CUtensorMap* k_map,
                        const CUtensorMap* v_map) {
  using QueryTile = typename Config::QueryTile;
  Ring<Config::stages> ring;
  Ring<2> rows;
  const auto load_rows = [&](const QueryTileIndex& at) {
    for (int w = 0; w < Config::consumers; ++w) {
      std::uint64_t* full = &shared.q_full[rows.stage][w];
      ptx::barrier_wait(&shared.q_empty[rows.stage][w], rows.parity ^ 1);
      ptx::barrier_arrive_expect(full, QueryTile::bytes);
      load_tile<QueryTile>(shared.q[rows.stage][w], q_map, full,
                           at.tile * Config::queries + w * warpgroup_rows, at.head, at.batch);
    }
    rows.advance();
  };
  const BlockTiles first(work.blocks.deck);
  load_rows(QueryTileIndex(work.blocks, first));
  for (BlockTiles mine(work.blocks.deck); mine.more(); mine.advance()) {
    load_keys<Config, Causal>(shared, ring, work.blocks, QueryTileIndex(work.blocks, mine), k_map,
                              v_map);
    // The queries of the next tile come while this one is under way.
    BlockTiles next = mine;
    next.advance();
    if (next.more()) load_rows(QueryTileIndex(work.blocks, next));
  }
}

// The running softmax of the two query rows that a thread holds part of.
struct RowSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  // over this thread's columns; of the row only at the end
  float rescale[2];       // of what was accumulated before

  // scores -> probabilities against the new maximum. `Guard`: a row may be masked altogether.
  template <bool Guard, int Count>
  __device__ void update(float (&s)[Count], float scale_log2) {
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = s[2 * r];
#pragma unroll
      for (int i = 0; i < Count; i += 4) top = fmaxf(top, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
      top = fmaxf(max[r], row_max(top));
      shift[r] = Guard && top == -INFINITY ? 0 : top * scale_log2;
      rescale[r] = ptx::exp2(fmaf(max[r], scale_log2, -shift[r]));
      max[r] = top;
    }
#pragma unroll
    for (int i = 0; i < Count; ++i) s[i] = ptx::exp2(fmaf(s[i], scale_log2, -shift[i / 2 % 2]));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = 0;
#pragma unroll
      for (int i = 0; i < Count; i += 4) total += s[i + 2 * r] + s[i + 2 * r + 1];
      sum[r] = fmaf(sum[r], rescale[r], total);
    }
  }
};

// One consumer warpgroup: its 64 rows of every tile of this thread block.
template <class Config, bool Causal>
class Consumer : QueryConsumer<Config, Causal, ForwardShared<Config>> {
  using Base = QueryConsumer<Config, Causal, ForwardShared<Config>>;
  using typename Base::Outputs;
  using typename Base::PackedScores;
  using typename Base::Scores;

 public:
  __device__ Consumer(ForwardShared<Config>& shared, const ForwardWork& work, int warpgroup)
      : Base(shared, work.blocks, warpgroup), work_(work) {
    if constexpr (Config::scaled) scale_log2_ = scale_of_scores(work.scale_log2, work.scale);
  }

  __device__ void run(const CUtensorMap* y_map) {
    this->begin_turns();
    BlockTiles mine(work_.blocks.deck);
    QueryTileIndex at(work_.blocks, mine);
    first_keys(at);
    for (;;) {
      const int unmasked = this->unmasked_tiles(at);
      int n = this->own_tiles(at) - 2;
      for (; n >= unmasked && n >= 0; --n) next_keys<true>(n, at);
      for (; n >= 0; --n) next_keys<false>(n, at);
      release(&shared_.q_empty[rows_.stage][warpgroup_]);
      rows_.advance();
      mine.advance();
      if (!mine.more()) break;
      const QueryTileIndex next(work_.blocks, mine);
      next_tile(at, next, y_map);
      at = next;
    }
    ptx::barrier_wait(&shared_.v_full[ring_.stage], ring_.parity);
    issue_values(ring_.stage);
    ptx::wgmma_wait<0>();
    ptx::pin(out_);
    write(at, y_map);
  }

 private:
  using Base::blocks_;
  using Base::ring_;
  using Base::rows_;
  using Base::shared_;
  using Base::top;
  using Base::warpgroup_;

  __device__ float scale_log2() const { return Config::scaled ? scale_log2_ : work_.scale_log2; }

  // S = Q K^T.
  __device__ void issue_scores(Scores& s) {
    Base::issue_scores(s, shared_.q[rows_.stage][warpgroup_], shared_.k[ring_.stage]);
  }
  // O += P V.
  __device__ void issue_values(int stage) {
    this->issue_outputs(out_, probabilities_, shared_.v[stage], true);
  }

  // The first, that is last, key tile of a query tile: from scores to a new softmax.
  __device__ RowSoftmax begin(Scores& s, const QueryTileIndex& at) {
    const int n = this->own_tiles(at) - 1;
    if (n >= this->unmasked_tiles(at)) this->mask(s, n, at);
    RowSoftmax softmax;
    softmax.template update<true>(s, scale_log2());
    return softmax;
  }

  __device__ void first_keys(const QueryTileIndex& at) {
    Scores s;
    this->skip_keys(at);
    ptx::barrier_wait(&shared_.q_full[rows_.stage][warpgroup_], rows_.parity);
    ptx::barrier_wait(&shared_.k_full[ring_.stage], ring_.parity);
    issue_scores(s);
    ptx::wgmma_wait<0>();
    ptx::pin(s);
    release(&shared_.k_empty[ring_.stage]);
    softmax_ = begin(s, at);
    clear();
    this->pack(probabilities_, s);
  }

  // Issues S of this key tile and O += P V of the one before, and waits for S.
  __device__ void overlap(Scores& s, const Ring<Config::stages>& before) {
    ptx::barrier_wait(&shared_.k_full[ring_.stage], ring_.parity);
    this->wait_turn();
    issue_scores(s);
    ptx::barrier_wait(&shared_.v_full[before.stage], before.parity);
    issue_values(before.stage);
    this->pass_turn();
    ptx::wgmma_wait<1>();
    ptx::pin(s);
    release(&shared_.k_empty[ring_.stage]);
  }

  // The next key tile.
  template <bool Masked>
  __device__ void next_keys(int n, const QueryTileIndex& at) {
    const Ring<Config::stages> before = ring_;
    ring_.advance();
    Scores s;
    overlap(s, before);
    if constexpr (Masked) this->mask(s, n, at);
    softmax_.template update<Masked>(s, scale_log2());
    ptx::wgmma_wait<0>();
    ptx::pin(out_);
    release(&shared_.v_empty[before.stage]);
#pragma unroll
    for (int i = 0; i < Config::head_dim / 2; ++i) out_[i] *= softmax_.rescale[i / 2 % 2];
    this->pack(probabilities_, s);
  }

  // The end of one query tile and the first key tile of the next.
  __device__ void next_tile(const QueryTileIndex& at, const QueryTileIndex& next,
                            const CUtensorMap* y_map) {
    const Ring<Config::stages> before = ring_;
    ring_.advance();
    Scores s;
    this->skip_keys(next);
    ptx::barrier_wait(&shared_.q_full[rows_.stage][warpgroup_], rows_.parity);
    overlap(s, before);
    const RowSoftmax softmax = begin(s, next);
    ptx::wgmma_wait<0>();
    ptx::pin(out_);
    release(&shared_.v_empty[before.stage]);
    write(at, y_map);
    softmax_ = softmax;
    clear();
    this->pack(probabilities_, s);
  }

  __device__ void clear() {
#pragma unroll
    for (float& x : out_) x = 0;
  }

  __device__ void write(const QueryTileIndex& at, const CUtensorMap* y_map) {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = row_sum(softmax_.sum[r]);
      const int row = top(at) + first_row() + 8 * r;
      factor[r] = 1 / sum;
      if (threadIdx.x % 4 == 0 && row < work_.blocks.seq)
        work_.lse[(static_cast<std::int64_t>(at.batch) * work_.blocks.n_heads + at.head) *
                      work_.blocks.seq +
                  row] = (softmax_.max[r] * scale_log2() + log2f(sum)) * ln2;
    }
    if constexpr (Config::scaled) {
      const std::int64_t stride = work_.blocks.n_heads * Config::head_dim;
      store_f32(work_.y + at.batch * work_.blocks.seq * stride + at.head * Config::head_dim, stride,
                top(at) + first_row(), work_.blocks.seq, out_, factor[0] * *work_.scale,
                factor[1] * *work_.scale);
      return;
    }
    if (this->leads()) ptx::store_wait_read<0>();  // of the tile before
    this->sync();
    this->store_rows(at, y_map, shared_.y[warpgroup_], out_, factor[0], factor[1]);
  }

  const ForwardWork& work_;
  float scale_log2_ = 0;  // of scaled operands
  RowSoftmax softmax_;
  Outputs out_;
  PackedScores probabilities_;
};

template <class Config, bool Causal>
__global__ void __launch_bounds__(Config::threads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map,
                   const __grid_constant__ CUtensorMap y_map, const ForwardWork work) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<ForwardShared<Config>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::consumers; ++i)
      for (int stage = 0; stage < 2; ++stage) {
        ptx::barrier_init(&shared.q_full[stage][i], 1);
        ptx::barrier_init(&shared.q_empty[stage][i], warpgroup_releases);
      }
    init_key_rings<Config>(shared);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  take_roles<Config::producer_registers, Config::consumer_registers>(
      [&] { produce<Config, Causal>(shared, work, &q_map, &k_map, &v_map); },
      [&](int warpgroup) {
        Consumer<Config, Causal>(shared, work, warpgroup).run(&y_map);
        if (threadIdx.x % warpgroup_threads == 0) ptx::store_wait<0>();
      });
}

// `scale`: of scaled operands, else null.
template <class Config, bool Causal>
void forward(const FlashShape& shape, const FlashOperands& operands, const float* scale, void* y,
             float* lse, cudaStream_t stream) {
  const auto rows = [&](const void* base, std::int64_t heads, std::int64_t stride, int box) {
    return head_map(shape.dtype, base, shape.batch, shape.seq, heads, shape.head_dim, stride, box);
  };
  const CUtensorMap q = rows(operands.q, shape.n_heads, operands.q_stride, warpgroup_rows);
  const CUtensorMap k = rows(operands.k, shape.n_kv_heads, operands.k_stride, Config::keys);
  const CUtensorMap v = rows(operands.v, shape.n_kv_heads, operands.v_stride, Config::keys);
  // Results in f32 are stored from registers, not by the copy engine.
  const CUtensorMap out = rows(Config::scaled ? operands.q : y, shape.n_heads,
                               shape.n_heads * shape.head_dim, warpgroup_rows);

  ForwardWork work{QueryBlocks(shape, Config::queries), shape.scale * log2e, lse};
  if constexpr (Config::scaled) work.scale = scale, work.y = static_cast<float*>(y);
  launch_queries<Config, ForwardShared<Config>>(forward_kernel<Config, Causal>, work.blocks, stream,
                                                q, k, v, out, work);
  check(last_error(), "flash attention, forward");
}

template <class Config>
void forward(const FlashShape& shape, const FlashOperands& operands, const float* scale, void* y,
             float* lse, cudaStream_t stream) {
  if (shape.causal)
    forward<Config, true>(shape, operands, scale, y, lse, stream);
  else
    forward<Config, false>(shape, operands, scale, y, lse, stream);
}

template <class T, bool Scaled>
void forward_of(FlashForward kernel, const FlashShape& shape, const FlashOperands& operands,
                const float* scale, void* y, float* lse, cudaStream_t stream) {
  const bool three = kernel == FlashForward::three_warpgroups;
  if (shape.head_dim == 128)
    forward<ForwardConfig<T, 128, 128, 2, 2, Scaled>>(shape, operands, scale, y, lse, stream);
  else if (shape.head_dim == 64 && three)
    forward<ForwardConfig<T, 64, 128, 3, 2, Scaled>>(shape, operands, scale, y, lse, stream);
  else if (shape.head_dim == 64)
    forward<ForwardConfig<T, 64, 128, 2, 3, Scaled>>(shape, operands, scale, y, lse, stream);
  else if (three)
    forward<ForwardConfig<T, 32, 128, 3, 3, Scaled>>(shape, operands, scale, y, lse, stream);
  else
    forward<ForwardConfig<T, 32, 128, 2, 3, Scaled>>(shape, operands, scale, y, lse, stream);
}

}  // namespace
}  // namespace ridge::gpu::sm90

namespace ridge::gpu {

void flash_sm90_forward(FlashForward kernel, const FlashShape& shape, const FlashOperands& operands,
                        void* y, float* lse, Stream stream) {
  using namespace sm90;
  if (kernel == FlashForward::one_tile) return forward_short(shape, operands, y, lse, stream);
  if (kernel == FlashForward::whole_heads || kernel == FlashForward::whole_tiles)
    return forward_whole(shape, operands, kernel == FlashForward::whole_heads, y, lse, stream);
  dispatch_16_bit(shape.dtype, [&]<class T>() {
    forward_of<T, false>(kernel, shape, operands, nullptr, y, lse, stream);
  });
}

void flash_sm90_scaled_forward(FlashForward kernel, const ScaledFlash& call, float* y, float* lse,
                               Stream stream) {
  sm90::forward_of<Float16, true>(kernel, call.shape, call.operands, call.scale, y, lse, stream);
}

}  // namespace ridge::gpu
