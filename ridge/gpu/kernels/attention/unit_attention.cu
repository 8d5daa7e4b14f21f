// A warp has 16 rows of a tile, queries or keys, and all columns of their results. Scores pass
// through shared memory: there a row's lanes find its maximum and sum, and from there probabilities
// are the left operand of the next product, rounded to 16 bits.
//
// A matrix unit takes both operands with their rows along what is summed. So what is multiplied
// along the head's columns lies in shared memory as it does in memory, and what is multiplied along
// positions lies there transposed.

#include "ridge/gpu/kernels/attention/unit_attention.h"

#include "ridge/gpu/device/matrix_unit.h"
#include "ridge/gpu/kernels/attention/attention_backward.h"

namespace ridge::gpu {
namespace {

// A block's rows, of `Columns` columns (head_dim, padded), against tiles of 32 others.
template <class Element, int Columns, int Warps>
struct UnitTile {
  using T = Element;
  using Unit = MatrixUnit<T>;
  static constexpr int columns = Columns, rows_of_warp = 16, others = 32;
  static constexpr int rows = Warps * rows_of_warp, threads = Warps * warp_width;
  // Distances of rows in shared memory: of heads; of transposed ones and of probabilities.
  static constexpr int stride = Columns + 8, turned = others + 8;
  using Scores = WarpProduct<Unit, rows_of_warp, others>;
  using Result = WarpProduct<Unit, rows_of_warp, Columns>;

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / warp_width; }
  __device__ static int first_row() { return warp() * rows_of_warp; }
};

// Parts of a block's shared memory, one behind the other.
class SharedParts {
 public:
  __device__ explicit SharedParts(void* begin) : next_(static_cast<std::byte*>(begin)) {}
  template <class T>
  __device__ T* take(int count) {
    auto* const part = reinterpret_cast<T*>(next_);
    next_ += count * static_cast<int>(sizeof(T));
    return part;
  }

 private:
  std::byte* next_;
};

// Copies rows of a head to shared memory: as they are, `to`, and transposed, `turned`, where these
// are not null. Rows from `valid` on and columns beyond the head's are 0.
template <class Tile, int Rows>
__device__ void copy_head(const HeadRows<const typename Tile::T>& from, std::int64_t position,
                          int head, int valid, typename Tile::T* to, typename Tile::T* turned) {
  constexpr int packs = Tile::columns / 4;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * packs; i += Tile::threads) {
    const int row = i / packs, c = i % packs * 4;
    float x[4] = {0, 0, 0, 0};
    if (row < valid) load_columns(from.at(position + row, head), c, from.width, from.vector, x);
    if (to) store_pack(to + row * Tile::stride + c, x);
    if (turned)
      for (int e = 0; e < 4; ++e) store(turned + (c + e) * Tile::turned + row, x[e]);
  }
}

// What one query sees of the keys.
struct Seen {
  int seq;
  bool causal;
  __device__ bool operator()(int query, int key) const {
    return query < seq && key < seq && (!causal || key <= query);
  }
};

template <class T>
struct UnitForward {
  HeadRows<const T> q, k, v;
  HeadRows<T> y;
  float* lse;  // [batch, n_heads, seq]
};

// The distance of rows of f32 scores.
template <class Tile>
inline constexpr int score_stride = Tile::others + 4;

template <class Tile>
constexpr std::size_t forward_bytes() {
  using T = typename Tile::T;
  return (Tile::rows + Tile::others) * Tile::stride * sizeof(T) +
         Tile::columns * Tile::turned * sizeof(T) + Tile::rows * Tile::turned * sizeof(T) +
         Tile::rows * (score_stride<Tile> + 1) * sizeof(float);
}

// The running maximum and sum of a row, in each of the lanes that share it out.
struct SoftmaxRow {
  static constexpr int lanes = warp_width / 16;  // of a row
  float max = -__builtin_huge_valf(), sum = 0;

  __device__ static int row() { return lane_of_warp() / lanes; }
  template <class Combine>
  __device__ static float reduce(float x) {
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask /= 2) x = Combine()(x, shuffle_xor(x, mask));
    return x;
  }

  // Takes in the scores of `count` keys, makes probabilities of them, and returns by what all
  // before is to be multiplied.
  template <int count, class T>
  __device__ float take(const float* scores, T* probabilities) {
    const int part = lane_of_warp() % lanes;
    float most = max;
#pragma unroll
    for (int j = part; j < count; j += lanes) most = fmaxf(most, scores[j]);
    most = reduce<Max>(most);
    const float rescale = exp2f(max - most);
    max = most;
    float total = 0;
#pragma unroll
    for (int j = part; j < count; j += lanes) {
      const float p = exp2f(scores[j] - most);
      total += p;
      store(probabilities + j, p);
    }
    sum = sum * rescale + reduce<Sum>(total);
    return rescale;
  }
};

// Block (h, b, t) has a tile of queries of a head, the last, which see the most keys, first. Scores
// are in units of log 2.
template <class Tile>
__global__ void __launch_bounds__(Tile::threads)
    unit_forward(AttentionShape shape, UnitForward<typename Tile::T> io) {
  begin_kernel();
  using T = typename Tile::T;
  SharedParts parts(dynamic_shared<uint4>());
  T* const q = parts.take<T>(Tile::rows * Tile::stride);
  T* const k = parts.take<T>(Tile::others * Tile::stride);
  T* const v = parts.take<T>(Tile::columns * Tile::turned);
  const int own = Tile::first_row();
  T* const p = parts.take<T>(Tile::rows * Tile::turned) + own * Tile::turned;
  float* const scores =
      parts.take<float>(Tile::rows * score_stride<Tile>) + own * score_stride<Tile>;
  float* const factors = parts.take<float>(Tile::rows) + own;

  const int h = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int q0 = static_cast<int>(gridDim.z - 1 - blockIdx.z) * Tile::rows;
  const int kv = h / (shape.n_heads / shape.n_kv_heads);
  const std::int64_t first = static_cast<std::int64_t>(b) * shape.seq;
  const Seen sees{shape.seq, shape.causal};
  const int end = shape.causal ? min(shape.seq, q0 + Tile::rows) : shape.seq;
  const float scale = shape.scale * log2_e;
  const int row = SoftmaxRow::row();

  copy_head<Tile, Tile::rows>(io.q, first + q0, h, shape.seq - q0, q, nullptr);
  SoftmaxRow softmax;
  typename Tile::Result y;
  for (int k0 = 0; k0 < end; k0 += Tile::others) {
    __syncthreads();  // the tiles before are used
    copy_head<Tile, Tile::others>(io.k, first + k0, kv, shape.seq - k0, k, nullptr);
    copy_head<Tile, Tile::others>(io.v, first + k0, kv, shape.seq - k0, nullptr, v);
    __syncthreads();
    typename Tile::Scores s;
    s.template add<Tile::columns>(q + own * Tile::stride, k, Tile::stride);
    s.each([&](int r, int key, float sum) {
      // A row beyond the sequence is like its last, so that it has a maximum.
      const bool seen = sees(min(q0 + own + r, shape.seq - 1), k0 + key);
      scores[r * score_stride<Tile> + key] = seen ? sum * scale : -__builtin_huge_valf();
    });
    sync_warp();
    const float rescale = softmax.template take<Tile::others>(scores + row * score_stride<Tile>,
                                                              p + row * Tile::turned);
    if (lane_of_warp() % SoftmaxRow::lanes == 0) factors[row] = rescale;
    sync_warp();
    y.change([&](int r, int, float sum) { return sum * factors[r]; });
    y.template add<Tile::others>(p, v, Tile::turned);
  }
  sync_warp();  // the last factors are used
  if (lane_of_warp() % SoftmaxRow::lanes == 0) {
    factors[row] = 1.0f / softmax.sum;
    if (q0 + own + row < shape.seq)
      io.lse[(static_cast<std::int64_t>(b) * shape.n_heads + h) * shape.seq + q0 + own + row] =
          (softmax.max + log2f(softmax.sum)) * ln_2;
  }
  sync_warp();
  y.each([&](int r, int c, float sum) {
    if (q0 + own + r < shape.seq && c < io.y.width)
      store(io.y.at(first + q0 + own + r, h) + c, sum * factors[r]);
  });
}

template <class T>
struct UnitBackward {
  HeadRows<const T> q, k, v, dy;
  const float *lse, *delta;  // [batch, n_heads, seq]; delta is sum_c dy y
  HeadRows<T> dq, dk, dv;
};

// Of a query: what its scores are held against.
struct QueryRow {
  float lse = 0, delta = 0;
  template <class T>
  __device__ QueryRow(const AttentionShape& shape, const UnitBackward<T>& io, int b, int h,
                      int query) {
    if (query >= shape.seq) return;
    const std::int64_t at = (static_cast<std::int64_t>(b) * shape.n_heads + h) * shape.seq + query;
    lse = io.lse[at] * log2_e;
    delta = io.delta[at];
  }
};

template <class Tile>
constexpr std::size_t key_gradient_bytes() {
  return (2 * (Tile::rows + Tile::others) * Tile::stride + 2 * Tile::columns * Tile::turned +
          2 * Tile::rows * Tile::turned) *
             sizeof(typename Tile::T) +
         2 * Tile::others * sizeof(float);
}

// Block (kv, b, t) has a tile of keys and values of a head, and meets all queries that see them:
// dv = p^T dy and dk = scale ds^T q with ds = p (dy v^T - delta), all transposed, [key, query].
template <class Tile>
__global__ void __launch_bounds__(Tile::threads)
    unit_key_gradients(AttentionShape shape, UnitBackward<typename Tile::T> io) {
  begin_kernel();
  using T = typename Tile::T;
  SharedParts parts(dynamic_shared<uint4>());
  T* const k = parts.take<T>(Tile::rows * Tile::stride);
  T* const v = parts.take<T>(Tile::rows * Tile::stride);
  T* const q = parts.take<T>(Tile::others * Tile::stride);
  T* const dy = parts.take<T>(Tile::others * Tile::stride);
  T* const q_turned = parts.take<T>(Tile::columns * Tile::turned);
  T* const dy_turned = parts.take<T>(Tile::columns * Tile::turned);
  const int own = Tile::first_row();
  T* const p = parts.take<T>(Tile::rows * Tile::turned) + own * Tile::turned;
  T* const ds = parts.take<T>(Tile::rows * Tile::turned) + own * Tile::turned;
  float* const lse = parts.take<float>(Tile::others);
  float* const delta = parts.take<float>(Tile::others);

  const int kv = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int k0 = static_cast<int>(blockIdx.z) * Tile::rows;
  const int group = shape.n_heads / shape.n_kv_heads;
  const std::int64_t first = static_cast<std::int64_t>(b) * shape.seq;
  const Seen sees{shape.seq, shape.causal};
  const float scale = shape.scale * log2_e;

  copy_head<Tile, Tile::rows>(io.k, first + k0, kv, shape.seq - k0, k, nullptr);
  copy_head<Tile, Tile::rows>(io.v, first + k0, kv, shape.seq - k0, v, nullptr);
  typename Tile::Result dk, dv;
  for (int h = kv * group; h < (kv + 1) * group; ++h)
    for (int q0 = shape.causal ? k0 / Tile::others * Tile::others : 0; q0 < shape.seq;
         q0 += Tile::others) {
      __syncthreads();  // the tiles before are used
      copy_head<Tile, Tile::others>(io.q, first + q0, h, shape.seq - q0, q, q_turned);
      copy_head<Tile, Tile::others>(io.dy, first + q0, h, shape.seq - q0, dy, dy_turned);
      if (const int i = static_cast<int>(threadIdx.x); i < Tile::others) {
        const QueryRow query(shape, io, b, h, q0 + i);
        lse[i] = query.lse;
        delta[i] = query.delta;
      }
      __syncthreads();
      typename Tile::Scores s, dp;
      s.template add<Tile::columns>(k + own * Tile::stride, q, Tile::stride);
      dp.template add<Tile::columns>(v + own * Tile::stride, dy, Tile::stride);
      s.each_with(dp, [&](int key, int query, float score, float gradient) {
        const float probability =
            sees(q0 + query, k0 + own + key) ? exp2f(fmaf(score, scale, -lse[query])) : 0.0f;
        store(p + key * Tile::turned + query, probability);
        store(ds + key * Tile::turned + query, probability * (gradient - delta[query]));
      });
      sync_warp();
      dv.template add<Tile::others>(p, dy_turned, Tile::turned);
      dk.template add<Tile::others>(ds, q_turned, Tile::turned);
    }
  dk.each_with(dv, [&](int key, int c, float of_key, float of_value) {
    const int position = k0 + own + key;
    if (position >= shape.seq || c >= io.dk.width) return;
    store(io.dk.at(first + position, kv) + c, of_key * shape.scale);
    store(io.dv.at(first + position, kv) + c, of_value);
  });
}

template <class Tile>
constexpr std::size_t query_gradient_bytes() {
  return (2 * (Tile::rows + Tile::others) * Tile::stride + Tile::columns * Tile::turned +
          Tile::rows * Tile::turned) *
             sizeof(typename Tile::T) +
         2 * Tile::rows * sizeof(float);
}

// Block (h, b, t) has a tile of queries of a head: dq = scale ds k, of all keys that they see.
template <class Tile>
__global__ void __launch_bounds__(Tile::threads)
    unit_query_gradients(AttentionShape shape, UnitBackward<typename Tile::T> io) {
  begin_kernel();
  using T = typename Tile::T;
  SharedParts parts(dynamic_shared<uint4>());
  T* const q = parts.take<T>(Tile::rows * Tile::stride);
  T* const dy = parts.take<T>(Tile::rows * Tile::stride);
  T* const k = parts.take<T>(Tile::others * Tile::stride);
  T* const v = parts.take<T>(Tile::others * Tile::stride);
  T* const k_turned = parts.take<T>(Tile::columns * Tile::turned);
  const int own = Tile::first_row();
  T* const ds = parts.take<T>(Tile::rows * Tile::turned) + own * Tile::turned;
  float* const lse = parts.take<float>(Tile::rows);
  float* const delta = parts.take<float>(Tile::rows);

  const int h = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  const int q0 = static_cast<int>(gridDim.z - 1 - blockIdx.z) * Tile::rows;
  const int kv = h / (shape.n_heads / shape.n_kv_heads);
  const std::int64_t first = static_cast<std::int64_t>(b) * shape.seq;
  const Seen sees{shape.seq, shape.causal};
  const int end = shape.causal ? min(shape.seq, q0 + Tile::rows) : shape.seq;
  const float scale = shape.scale * log2_e;

  copy_head<Tile, Tile::rows>(io.q, first + q0, h, shape.seq - q0, q, nullptr);
  copy_head<Tile, Tile::rows>(io.dy, first + q0, h, shape.seq - q0, dy, nullptr);
  if (const int i = static_cast<int>(threadIdx.x); i < Tile::rows) {
    const QueryRow query(shape, io, b, h, q0 + i);
    lse[i] = query.lse;
    delta[i] = query.delta;
  }
  typename Tile::Result dq;
  for (int k0 = 0; k0 < end; k0 += Tile::others) {
    __syncthreads();  // the tiles before are used
    copy_head<Tile, Tile::others>(io.k, first + k0, kv, shape.seq - k0, k, k_turned);
    copy_head<Tile, Tile::others>(io.v, first + k0, kv, shape.seq - k0, v, nullptr);
    __syncthreads();
    typename Tile::Scores s, dp;
    s.template add<Tile::columns>(q + own * Tile::stride, k, Tile::stride);
    dp.template add<Tile::columns>(dy + own * Tile::stride, v, Tile::stride);
    s.each_with(dp, [&](int query, int key, float score, float gradient) {
      const float probability =
          sees(q0 + own + query, k0 + key) ? exp2f(fmaf(score, scale, -lse[own + query])) : 0.0f;
      store(ds + query * Tile::turned + key, probability * (gradient - delta[own + query]));
    });
    sync_warp();
    dq.template add<Tile::others>(ds, k_turned, Tile::turned);
  }
  dq.each([&](int query, int c, float sum) {
    if (q0 + own + query < shape.seq && c < io.dq.width)
      store(io.dq.at(first + q0 + own + query, h) + c, sum * shape.scale);
  });
}

// Calls f.template operator()<T, Columns>() for the dtype, and for the narrowest columns that hold
// a head.
template <class F>
void with_columns(DType dtype, std::int64_t head_dim, const F& f) {
  dispatch_16_bit(dtype, [&]<class T>() {
    if (head_dim <= 32) return f.template operator()<T, 32>();
    if (head_dim <= 64) return f.template operator()<T, 64>();
    return f.template operator()<T, 128>();
  });
}

AttentionShape shape_of(const FlashShape& s) {
  return {.batch = static_cast<int>(s.batch),
          .seq = static_cast<int>(s.seq),
          .n_heads = static_cast<int>(s.n_heads),
          .n_kv_heads = static_cast<int>(s.n_kv_heads),
          .scale = s.scale,
          .causal = s.causal};
}

// Enqueues a kernel with a block for each tile of each of so many heads.
template <class Tile, class Io>
void launch_tiles(Stream stream, bool early, void (*kernel)(AttentionShape, Io),
                  const FlashShape& s, std::int64_t heads, std::size_t shared, const Io& io) {
  allow_shared_memory(kernel, shared);
  launch_on(stream, early, kernel,
            dim3(static_cast<unsigned>(heads), static_cast<unsigned>(s.batch),
                 blocks_for(s.seq, Tile::rows)),
            dim3(Tile::threads), shared, shape_of(s), io);
}

class UnitAttention final : public FusedAttention {
 public:
  UnitAttention(const Card& card, DType dtype, const FlashShape& shape)
      : early_(card.launches_early()), dtype_(dtype), s_(shape) {}

  std::size_t workspace() const override { return 0; }
  void run(Stream stream, const FlashOperands& o, void* y, float* lse, void*) const override {
    with_columns(dtype_, s_.head_dim, [&]<class T, int Columns>() {
      using Tile = UnitTile<T, Columns, 4>;
      const auto rows = [&](const void* data, std::int64_t stride) {
        return head_rows(static_cast<const T*>(data), stride, s_.head_dim);
      };
      const UnitForward<T> io{
          .q = rows(o.q, o.q_stride),
          .k = rows(o.k, o.k_stride),
          .v = rows(o.v, o.v_stride),
          .y = head_rows(static_cast<T*>(y), s_.n_heads * s_.head_dim, s_.head_dim),
          .lse = lse};
      launch_tiles<Tile>(stream, early_, unit_forward<Tile>, s_, s_.n_heads, forward_bytes<Tile>(),
                         io);
    });
  }

 private:
  bool early_;
  DType dtype_;
  FlashShape s_;
};

class UnitAttentionGrad final : public FusedAttentionGrad {
 public:
  UnitAttentionGrad(const Card& card, DType dtype, const FlashShape& shape)
      : early_(card.launches_early()), dtype_(dtype), s_(shape) {}

  std::size_t workspace() const override {
    return static_cast<std::size_t>(s_.batch * s_.n_heads * s_.seq) * sizeof(float);
  }
  void run(Stream stream, const FlashOperands& o, const void* y, const float* lse, const void* dy,
           const FlashGradients& g, void* workspace) const override {
    auto* const delta = static_cast<float*>(workspace);
    with_columns(dtype_, s_.head_dim, [&]<class T, int Columns>() {
      const auto rows = [&](const void* data, std::int64_t stride) {
        return head_rows(static_cast<const T*>(data), stride, s_.head_dim);
      };
      const auto results = [&](void* data, std::int64_t stride) {
        return head_rows(static_cast<T*>(data), stride, s_.head_dim);
      };
      const std::int64_t of_y = s_.n_heads * s_.head_dim;
      const UnitBackward<T> io{.q = rows(o.q, o.q_stride),
                               .k = rows(o.k, o.k_stride),
                               .v = rows(o.v, o.v_stride),
                               .dy = rows(dy, of_y),
                               .lse = lse,
                               .delta = delta,
                               .dq = results(g.dq, g.dq_stride),
                               .dk = results(g.dk, g.dk_stride),
                               .dv = results(g.dv, g.dv_stride)};
      const std::int64_t lanes = s_.batch * s_.n_heads * s_.seq * delta_lanes;
      launch_on(stream, early_, attention_delta<T>, dim3(blocks_for(lanes, delta_threads)),
                dim3(delta_threads), 0, io.dy, rows(y, of_y), delta, shape_of(s_),
                static_cast<int*>(nullptr), std::int64_t{0});
      // Less shared memory is left for wide heads.
      using Keys = UnitTile<T, Columns, Columns == 128 ? 2 : 4>;
      launch_tiles<Keys>(stream, early_, unit_key_gradients<Keys>, s_, s_.n_kv_heads,
                         key_gradient_bytes<Keys>(), io);
      launch_tiles<Keys>(stream, early_, unit_query_gradients<Keys>, s_, s_.n_heads,
                         query_gradient_bytes<Keys>(), io);
    });
  }

 private:
  bool early_;
  DType dtype_;
  FlashShape s_;
};

}  // namespace

bool unit_attention_supports(DType dtype, const FlashShape& shape) {
  return is_16_bit(dtype) && shape.head_dim % 8 == 0 && shape.head_dim <= 128;
}

std::unique_ptr<FusedAttention> unit_attention(const Card& card, DType dtype,
                                               const FlashShape& shape) {
  return std::make_unique<UnitAttention>(card, dtype, shape);
}

std::unique_ptr<FusedAttentionGrad> unit_attention_grad(const Card& card, DType dtype,
                                                        const FlashShape& shape) {
  return std::make_unique<UnitAttentionGrad>(card, dtype, shape);
}

}  // namespace ridge::gpu
