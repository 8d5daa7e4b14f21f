// Flash attention, forward, of 129 to 256 positions without mask. Blocks stay and go through the
// heads: all of a head is in shared memory at once, and that of the next comes meanwhile. Tiles of
// 64 queries go round among three warpgroups:
//   S = Q K^T;  P = exp(scale S - rowmax);  y = P V / rowsum(P)
// All scores of a row are there at once, so that nothing is scaled twice. Both products are in two
// parts of the keys, so that one is under way while the probabilities of the other are computed.
// One warp of a fourth warpgroup has the copy engine load. If up to 16 queries are left beyond the
// tiles, as 5 of 197 are, its others take these, each a third of the keys, by products of one warp:
// in a tile they would cost as much as 64.

#include <algorithm>

#include "ridge/gpu/device/matrix_instructions.h"
#include "ridge/gpu/sm90/attention/flash_tile.h"
#include "ridge/gpu/sm90/attention/flash_whole.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/warp_mma.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int most_tiles = most_whole_keys / warpgroup_rows;
constexpr int warpgroups = 3;  // of as many registers as two products take
constexpr int threads = (warpgroups + 1) * warpgroup_threads;
constexpr int most_rest = most_rest_rows;  // queries that one warp multiplies
constexpr int rest_warps = 3;

template <class T>
struct WholeForward {
  CUtensorMap q, rest, k, v, y;
  T* out;                               // y, where the rest goes
  float* lse;                           // [batch, n_heads, seq]
  int seq, n_heads, n_kv_heads, heads;  // heads: of the whole batch
  int tiles, rest_rows;                 // of queries; and those beyond, which a warp takes
  float scale_log2;
};

// A head. Left and Right: the keys of the two parts.
template <class T, int HeadDim, int Left, int Right>
struct WholeHead {
  using Queries = Tile<T, warpgroup_rows, HeadDim>;
  using Rest = Tile<T, most_rest, HeadDim>;
  using Keys = Tile<T, Left + Right, HeadDim>;
  static constexpr int head_dim = HeadDim, keys = Left + Right;
  // Scores of more keys leave no registers for warps that do more than load.
  static constexpr bool takes_rest = keys <= most_keys_beside_rest;
  static constexpr int registers = takes_rest ? 144 : 160, other_registers = takes_rest ? 80 : 32;
  alignas(1024) unsigned char q[most_tiles][Queries::bytes];  // and then y
  alignas(1024) unsigned char k[Keys::bytes];
  alignas(1024) unsigned char v[Keys::bytes];
};

// What a part of the keys gives for the queries beyond the tiles: of exp(scale S - top), the sums,
// and those times V.
template <int HeadDim>
struct RestSums {
  alignas(16) float out[most_rest][HeadDim + 8];  // such that rows begin in different banks
  float top[most_rest], sum[most_rest];           // top: times scale log2(e)
};

template <class Head>
struct WholeShared {
  Head head[2];
  RestSums<Head::head_dim> rest[2][rest_warps];     // of either head
  std::uint64_t full[2], full_values[2], empty[2];  // full: of queries and keys
};

// Issues s = Q K^T of Count keys from `first` on. q and k: as operands, from the first row and
// column on.
template <class Queries, class Keys, int Count>
__device__ void issue_scores(float (&s)[Count / 2], std::uint64_t q, std::uint64_t k, int first) {
#pragma unroll
  for (int step = 0; step < Queries::panel_columns / 16; ++step)
    ptx::wgmma<typename Queries::Element, Count, false, false>(
        s, ptx::operand_at(q, ptx::operand_address(Queries::along_columns(0, step))),
        ptx::operand_at(k, ptx::operand_address(Keys::along_columns(0, step, first))), step != 0);
  ptx::wgmma_commit();
}

// Scores of keys past the end become -infinity, from the First on; `key`: that of the columns'
// first.
template <int First, int Count>
__device__ void hide_beyond(float (&s)[Count], int key, int seq) {
#pragma unroll
  for (int i = First; i < Count; ++i)
    if (key + first_column() + i / 4 * 8 + i % 2 >= seq) s[i] = -INFINITY;
}

template <int Count>
__device__ float top_score(const float (&s)[Count], int half, float top) {
#pragma unroll
  for (int i = 2 * half; i < Count; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
  return top;
}

// p = the probabilities of scores; adds them up, for either of the thread's two rows.
template <class T, int Count>
__device__ void to_probabilities(const float (&s)[Count], float scale_log2, const float (&top)[2],
                                 std::uint32_t (&p)[Count / 8][4], float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < Count; i += 2) {
    const int r = i / 2 % 2;
    const float left = ptx::exp2(fmaf(s[i], scale_log2, -top[r]));
    const float right = ptx::exp2(fmaf(s[i + 1], scale_log2, -top[r]));
    sum[r] += left + right;
    p[i / 8][i / 2 % 4] = ptx::pack<T>(left, right);
  }
}

// Issues out (+)= P V of the keys from 16 * first on.
template <class Keys, int Steps, int Count>
__device__ void issue_values(float (&out)[Count], const std::uint32_t (&p)[Steps][4],
                             std::uint64_t v, int first) {
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < Steps; ++step)
    ptx::wgmma<typename Keys::Element, 2 * Count, true>(
        out, p[step], ptx::operand_at(v, ptx::operand_address(Keys::along_rows(0, first + step))),
        first + step != 0);
  ptx::wgmma_commit();
}

template <class T, class Head>
__device__ void load_head(const WholeForward<T>& call, WholeShared<Head>& shared, int stage,
                          int index) {
  using Queries = typename Head::Queries;
  using Rest = typename Head::Rest;
  using Keys = typename Head::Keys;
  Head& to = shared.head[stage];
  const int batch = index / call.n_heads, head = index - batch * call.n_heads;
  const int kv_head = head / (call.n_heads / call.n_kv_heads);
  const int tiles = call.tiles;
  const bool rest = call.rest_rows > 0;
  std::uint64_t* const full = &shared.full[stage];
  std::uint64_t* const full_values = &shared.full_values[stage];
  ptx::barrier_arrive_expect(full, Keys::bytes + tiles * Queries::bytes + (rest ? Rest::bytes : 0));
  load_tile<Keys>(to.k, &call.k, full, 0, kv_head, batch);
  for (int tile = 0; tile < tiles; ++tile)
    load_tile<Queries>(to.q[tile], &call.q, full, tile * warpgroup_rows, head, batch);
  if (rest) load_tile<Rest>(to.q[tiles], &call.rest, full, tiles * warpgroup_rows, head, batch);
  ptx::barrier_arrive_expect(full_values, Keys::bytes);
  load_tile<Keys>(to.v, &call.v, full_values, 0, kv_head, batch);
}

// One warpgroup's tile of queries, whose y takes their place.
template <class T, int HeadDim, int Left, int Right, class Head>
__device__ void attend(const WholeForward<T>& call, Head& at, std::uint64_t* full_values,
                       std::uint32_t parity, int index, int tile, int warpgroup) {
  using Queries = typename Head::Queries;
  using Keys = typename Head::Keys;
  const std::uint32_t queries = ptx::shared_address(at.q[tile]);
  const std::uint64_t q = Queries::along_columns(queries, 0);
  const std::uint64_t k = Keys::along_columns(ptx::shared_address(at.k), 0);
  const std::uint64_t v = Keys::along_rows(ptx::shared_address(at.v), 0);
  float left[Left / 2], right[Right / 2], out[HeadDim / 2];
  ptx::wgmma_fence();
  issue_scores<Queries, Keys, Left>(left, q, k, 0);
  issue_scores<Queries, Keys, Right>(right, q, k, Left);
  ptx::wgmma_wait<1>();
  ptx::pin(left);
  float top[2], sum[2] = {0, 0};  // top: times scale log2(e)
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r] = top_score(left, r, -INFINITY);
  ptx::wgmma_wait<0>();
  ptx::pin(right);
  if (call.seq <= Left + Right - 16)
    hide_beyond<0>(right, Left, call.seq);
  else
    hide_beyond<Right / 2 - 8>(right, Left, call.seq);
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r] = row_max(top_score(right, r, top[r])) * call.scale_log2;
  std::uint32_t p[Left / 16][4], more[Right / 16][4];
  to_probabilities<T>(left, call.scale_log2, top, p, sum);
  ptx::barrier_wait(full_values, parity);
  issue_values<Keys>(out, p, v, 0);
  to_probabilities<T>(right, call.scale_log2, top, more, sum);
  issue_values<Keys>(out, more, v, Left / 16);

  const int row = tile * warpgroup_rows + first_row();
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = row_sum(sum[r]);
    factor[r] = 1 / total;
    if (threadIdx.x % 4 == 0 && row + 8 * r < call.seq)
      call.lse[static_cast<std::int64_t>(index) * call.seq + row + 8 * r] =
          (top[r] + log2f(total)) * ln2;
  }
  ptx::wgmma_wait<0>();
  ptx::pin(out);
  // All warps' products have read the queries.
  ptx::named_sync(1 + warpgroup, warpgroup_threads);
  store_accumulators<Queries>(queries, 0, out, factor[0], factor[1]);
  ptx::fence_shared_for_async();
  ptx::named_sync(1 + warpgroup, warpgroup_threads);
}

// A part of the keys of a head for the queries beyond the tiles, by one warp.
template <class T, int HeadDim, class Head>
class PartOfRest {
  using Rest = typename Head::Rest;
  using Keys = typename Head::Keys;
  static constexpr int steps = (Head::keys / 16 + rest_warps - 1) / rest_warps;  // of 16 keys

 public:
  __device__ PartOfRest(const WholeForward<T>& call, const Head& at, int part)
      : call_(call),
        q_(ptx::shared_address(at.q[call.tiles])),
        k_(ptx::shared_address(at.k)),
        v_(ptx::shared_address(at.v)),
        lane_(static_cast<int>(threadIdx.x) % warp_threads),
        first_(16 * steps * part) {}

  // The probabilities, but for the sum over all keys.
  __device__ void weigh() {
    float s[2 * steps][4] = {};
    add_scores(s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < 2 * steps; ++j)
        top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
      top_[half] = row_max(top) * call_.scale_log2;
      const float shift = top_[half] == -INFINITY ? 0.0f : top_[half];  // a part without keys
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 2 * steps; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[j][2 * half + e];
          sum += x = ptx::exp2(fmaf(x, call_.scale_log2, -shift));
        }
      sum_[half] = row_sum(sum);
    }
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p_[step][i] =
            ptx::pack<T>(s[2 * step + i / 2][i % 2 * 2], s[2 * step + i / 2][i % 2 * 2 + 1]);
  }

  __device__ void write(RestSums<HeadDim>& to) const {
    float out[HeadDim / 8][4] = {};
#pragma unroll
    for (int step = 0; step < steps; ++step)
      if (first_ + 16 * step < call_.seq) add_values(out, step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane_ / 4 + 8 * half;
      to.top[row] = top_[half];
      to.sum[row] = sum_[half];
#pragma unroll
      for (int j = 0; j < HeadDim / 8; ++j)
        *reinterpret_cast<float2*>(&to.out[row][8 * j + first_column()]) =
            float2{out[j][2 * half], out[j][2 * half + 1]};
    }
  }

 private:
  // Those of keys beyond the last are -infinity.
  __device__ void add_scores(float (&s)[2 * steps][4]) const {
#pragma unroll
    for (int step = 0; step < HeadDim / 16; ++step) {
      std::uint32_t a[4];
      ptx::load_matrices(a, Rest::chunk(q_, lane_ % 16, 2 * step + lane_ / 16));
#pragma unroll
      for (int j = 0; j < 2 * steps; j += 2) {
        const int key = first_ + 8 * j;
        if (key >= call_.seq) continue;
        std::uint32_t b[4];
        ptx::load_matrices(
            b, Keys::chunk(k_, key + lane_ / 16 * 8 + lane_ % 8, 2 * step + lane_ / 8 % 2));
        mma<T>(s[j], a, b[0], b[1]);
        mma<T>(s[j + 1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int j = 0; j < 2 * steps; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (first_ + 8 * j + first_column() + i % 2 >= call_.seq) s[j][i] = -INFINITY;
  }

  // out += P V of 16 keys.
  __device__ void add_values(float (&out)[HeadDim / 8][4], int step) const {
#pragma unroll
    for (int j = 0; j < HeadDim / 8; j += 2) {
      std::uint32_t b[4];
      ptx::load_matrices_transposed(
          b, Keys::chunk(v_, first_ + 16 * step + lane_ % 16, j + lane_ / 16));
      mma<T>(out[j], p_[step], b[0], b[1]);
      mma<T>(out[j + 1], p_[step], b[2], b[3]);
    }
  }

  const WholeForward<T>& call_;
  const std::uint32_t q_, k_, v_;
  const int lane_, first_;
  float top_[2], sum_[2];  // top: times scale log2(e)
  std::uint32_t p_[steps][4];
};

// y of the queries beyond the tiles, a pair of columns a thread.
template <class T, int HeadDim>
__device__ void write_rest(const WholeForward<T>& call,
                           const RestSums<HeadDim> (&parts)[rest_warps], int index, int thread) {
  constexpr int pairs = HeadDim / 2;
  const int batch = index / call.n_heads, head = index - batch * call.n_heads;
  for (int i = thread; i < call.rest_rows * pairs; i += rest_warps * warp_threads) {
    const int within = i / pairs, pair = i % pairs, row = call.seq - call.rest_rows + within;
    float top = -INFINITY, sum = 0;
    float2 y{};
    for (const auto& part : parts) top = fmaxf(top, part.top[within]);
    for (const auto& part : parts) {
      const float factor = ptx::exp2(part.top[within] - top);
      const float2 out = *reinterpret_cast<const float2*>(&part.out[within][2 * pair]);
      sum += factor * part.sum[within];
      y.x += factor * out.x;
      y.y += factor * out.y;
    }
    const std::int64_t to =
        (static_cast<std::int64_t>(batch) * call.seq + row) * call.n_heads + head;
    reinterpret_cast<std::uint32_t*>(call.out + to * HeadDim)[pair] =
        ptx::pack<T>(y.x / sum, y.y / sum);
    if (pair == 0)
      call.lse[static_cast<std::int64_t>(index) * call.seq + row] = (top + log2f(sum)) * ln2;
  }
}

// The block's heads, each with the buffer it is in.
template <class Function>
__device__ void for_each_head(int heads, const Function& function) {
  Ring<2> ring;
  for (int index = static_cast<int>(blockIdx.x); index < heads;
       index += static_cast<int>(gridDim.x), ring.advance())
    function(index, ring);
}

template <class T, class Head>
__device__ void produce_heads(const WholeForward<T>& call, WholeShared<Head>& shared) {
  for_each_head(call.heads, [&](int index, const Ring<2>& ring) {
    ptx::barrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    load_head(call, shared, ring.stage, index);
  });
}

// By warps that share the keys of each head: one alone would hold its buffer for longer than tiles.
template <class T, int HeadDim, class Head>
__device__ void attend_rests(const WholeForward<T>& call, WholeShared<Head>& shared, int part) {
  for_each_head(call.heads, [&](int index, const Ring<2>& ring) {
    ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
    PartOfRest<T, HeadDim, Head> rest(call, shared.head[ring.stage], part);
    rest.weigh();
    ptx::barrier_wait(&shared.full_values[ring.stage], ring.parity);
    auto& sums = shared.rest[ring.stage];
    rest.write(sums[part]);
    release(&shared.empty[ring.stage]);
    // Whoever writes these sums again, two heads on, has waited for all here in between.
    ptx::named_sync(1 + warpgroups, rest_warps * warp_threads);
    write_rest<T, HeadDim>(call, sums, index,
                           part * warp_threads + static_cast<int>(threadIdx.x) % warp_threads);
  });
}

template <class T, int HeadDim, int Left, int Right, class Head>
__device__ void attend_tiles(const WholeForward<T>& call, WholeShared<Head>& shared,
                             int warpgroup) {
  const bool leads = threadIdx.x % warpgroup_threads == 0;
  const int tiles = call.tiles;
  int tile = warpgroup;
  for_each_head(call.heads, [&](int index, const Ring<2>& ring) {
    ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
    Head& head = shared.head[ring.stage];
    for (; tile < tiles; tile += warpgroups) {
      attend<T, HeadDim, Left, Right>(call, head, &shared.full_values[ring.stage], ring.parity,
                                      index, tile, warpgroup);
      if (leads) {
        const int batch = index / call.n_heads;
        ptx::store_box(&call.y, head.q[tile], 0, tile * warpgroup_rows,
                       index - batch * call.n_heads, batch);
        ptx::store_commit();
      }
    }
    tile -= tiles;
    if (leads) {
      ptx::store_wait_read<0>();
      ptx::barrier_arrive(&shared.empty[ring.stage]);
    }
  });
  if (leads) ptx::store_wait<0>();
}

template <class T, int HeadDim, int Left, int Right>
__global__ void __launch_bounds__(threads, 1)
    whole_forward_kernel(const __grid_constant__ WholeForward<T> call) {
  extern __shared__ __align__(1024) unsigned char memory[];
  using Head = WholeHead<T, HeadDim, Left, Right>;
  auto& shared = *reinterpret_cast<WholeShared<Head>*>(memory);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      ptx::barrier_init(&shared.full[stage], 1);
      ptx::barrier_init(&shared.full_values[stage], 1);
      ptx::barrier_init(&shared.empty[stage],
                        warpgroups + (call.rest_rows > 0 ? rest_warps * warp_releases : 0));
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / warp_threads, 0);
  constexpr int producer = warpgroups * warpgroup_threads / warp_threads;
  if (warp < producer) {
    ptx::more_registers<Head::registers>();
    attend_tiles<T, HeadDim, Left, Right>(call, shared, warp / 4);
  } else {
    ptx::fewer_registers<Head::other_registers>();
    if (warp == producer) {
      if (ptx::elect_one()) produce_heads(call, shared);
    } else if constexpr (Head::takes_rest) {
      if (call.rest_rows > 0) attend_rests<T, HeadDim>(call, shared, warp - producer - 1);
    }
  }
}

template <class T, int HeadDim, int Left, int Right>
void forward(const FlashShape& shape, const FlashOperands& o, bool rest_by_warps, void* y,
             float* lse, cudaStream_t stream) {
  const auto map = [&](const void* base, std::int64_t heads, std::int64_t stride, int rows) {
    return head_map(shape.dtype, base, shape.batch, shape.seq, heads, shape.head_dim, stride, rows);
  };
  const auto seq = static_cast<int>(shape.seq);
  using Head = WholeHead<T, HeadDim, Left, Right>;
  const int rest = Head::takes_rest && rest_by_warps && has_rest(shape) ? seq % warpgroup_rows : 0;
  const WholeForward<T> call{map(o.q, shape.n_heads, o.q_stride, warpgroup_rows),
                             map(o.q, shape.n_heads, o.q_stride, most_rest),
                             map(o.k, shape.n_kv_heads, o.k_stride, Left + Right),
                             map(o.v, shape.n_kv_heads, o.v_stride, Left + Right),
                             map(y, shape.n_heads, shape.n_heads * shape.head_dim, warpgroup_rows),
                             static_cast<T*>(y),
                             lse,
                             seq,
                             static_cast<int>(shape.n_heads),
                             static_cast<int>(shape.n_kv_heads),
                             static_cast<int>(shape.n_heads * shape.batch),
                             (seq - rest + warpgroup_rows - 1) / warpgroup_rows,
                             rest,
                             shape.scale * log2e};
  constexpr std::size_t bytes = sizeof(WholeShared<Head>);
  const auto kernel = whole_forward_kernel<T, HeadDim, Left, Right>;
  allow_shared_memory(kernel, bytes);
  launch_early(kernel, dim3(static_cast<unsigned>(std::min(multiprocessors(), call.heads))),
               threads, bytes, stream, call);
  check(last_error(), "flash attention of whole heads");
}

template <class T, int HeadDim>
void forward(const FlashShape& shape, const FlashOperands& o, bool rest_by_warps, void* y,
             float* lse, cudaStream_t stream) {
  if (shape.seq <= most_keys_beside_rest)
    forward<T, HeadDim, 112, 96>(shape, o, rest_by_warps, y, lse, stream);
  else
    forward<T, HeadDim, 128, 128>(shape, o, rest_by_warps, y, lse, stream);
}

}  // namespace

void forward_whole(const FlashShape& shape, const FlashOperands& o, bool rest_by_warps, void* y,
                   float* lse, cudaStream_t stream) {
  dispatch_16_bit(shape.dtype, [&]<class T>() {
    shape.head_dim == 64 ? forward<T, 64>(shape, o, rest_by_warps, y, lse, stream)
                         : forward<T, 32>(shape, o, rest_by_warps, y, lse, stream);
  });
}

}  // namespace ridge::gpu::sm90
