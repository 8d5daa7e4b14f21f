// Flash attention, forward, of 129 to 256 positions without mask. Blocks stay and go through the
// heads: all of a head is in shared memory at once, and that of the next comes meanwhile. Tiles of
// 64 queries go round among three warpgroups:
//   S = Q K^T;  P = exp(scale S - rowmax);  y = P V / rowsum(P)
// All scores of a row are there at once, so that nothing is scaled twice. Both products are in two
// parts of the keys, so that one is under way while the probabilities of the other are computed.

#include <algorithm>

#include "ridge/gpu/sm90/flash_tile.h"
#include "ridge/gpu/sm90/flash_whole.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/query_blocks.h"
#include "ridge/gpu/sm90/tensor_map.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int most_tiles = most_whole_keys / warpgroup_rows;
constexpr int warpgroups = 3;  // of as many registers as two products take
constexpr int threads = warpgroups * warpgroup_threads;

template <class T>
struct WholeForward {
  CUtensorMap q, k, v, y;
  float* lse;                           // [batch, n_heads, seq]
  int seq, n_heads, n_kv_heads, heads;  // heads: of the whole batch
  float scale_log2;
};

// A head. Left and Right: the keys of the two parts.
template <class T, int HeadDim, int Left, int Right>
struct WholeHead {
  using Queries = Tile<T, warpgroup_rows, HeadDim>;
  using Keys = Tile<T, Left + Right, HeadDim>;
  alignas(1024) unsigned char q[most_tiles][Queries::bytes];  // and then y
  alignas(1024) unsigned char k[Keys::bytes];
  alignas(1024) unsigned char v[Keys::bytes];
};

template <class Head>
struct WholeShared {
  Head head[2];
  std::uint64_t full[2], empty[2];
};

// Issues s = Q K^T of Count keys from `first` on.
template <class Queries, class Keys, int Count>
__device__ void issue_scores(float (&s)[Count / 2], std::uint32_t q, std::uint32_t k, int first) {
#pragma unroll
  for (int step = 0; step < Queries::panel_columns / 16; ++step)
    ptx::wgmma<typename Queries::Element, Count, false, false>(
        s, Queries::along_columns(q, step), Keys::along_columns(k, step, first), step != 0);
  ptx::wgmma_commit();
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
                             std::uint32_t v, int first) {
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < Steps; ++step)
    ptx::wgmma<typename Keys::Element, 2 * Count, true>(
        out, p[step], Keys::along_rows(v, first + step), first + step != 0);
  ptx::wgmma_commit();
}

template <class T, class Head>
__device__ void load_head(const WholeForward<T>& call, Head& to, std::uint64_t* full, int index) {
  using Queries = typename Head::Queries;
  using Keys = typename Head::Keys;
  const int batch = index / call.n_heads, head = index - batch * call.n_heads;
  const int kv_head = head / (call.n_heads / call.n_kv_heads);
  const int tiles = (call.seq + warpgroup_rows - 1) / warpgroup_rows;
  ptx::barrier_arrive_expect(full, 2 * Keys::bytes + tiles * Queries::bytes);
  load_tile<Keys>(to.k, &call.k, full, 0, kv_head, batch);
  for (int tile = 0; tile < tiles; ++tile)
    load_tile<Queries>(to.q[tile], &call.q, full, tile * warpgroup_rows, head, batch);
  load_tile<Keys>(to.v, &call.v, full, 0, kv_head, batch);
}

// One warpgroup's tile of queries, whose y takes their place.
template <class T, int HeadDim, int Left, int Right, class Head>
__device__ void attend(const WholeForward<T>& call, Head& at, int index, int tile, int warpgroup) {
  using Queries = typename Head::Queries;
  using Keys = typename Head::Keys;
  const std::uint32_t q = ptx::shared_address(at.q[tile]);
  const std::uint32_t k = ptx::shared_address(at.k), v = ptx::shared_address(at.v);
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
  mask_scores<false>(right, 0, Left + first_column(), call.seq);
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r] = row_max(top_score(right, r, top[r])) * call.scale_log2;
  std::uint32_t p[Left / 16][4], more[Right / 16][4];
  to_probabilities<T>(left, call.scale_log2, top, p, sum);
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
  store_accumulators<Queries>(q, 0, out, factor[0], factor[1]);
  ptx::fence_shared_for_async();
  ptx::named_sync(1 + warpgroup, warpgroup_threads);
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
      ptx::barrier_init(&shared.empty[stage], warpgroups);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
  const bool leads = threadIdx.x % warpgroup_threads == 0;
  const int tiles = (call.seq + warpgroup_rows - 1) / warpgroup_rows;  // three or four
  const int step = static_cast<int>(gridDim.x);
  int index = static_cast<int>(blockIdx.x), tile = warpgroup;
  if (threadIdx.x == 0) load_head(call, shared.head[0], &shared.full[0], index);
  Ring<2> ring, next;
  for (next.advance(); index < call.heads; index += step, ring.advance(), next.advance()) {
    if (threadIdx.x == 0 && index + step < call.heads) {
      ptx::barrier_wait(&shared.empty[next.stage], next.parity ^ 1);
      load_head(call, shared.head[next.stage], &shared.full[next.stage], index + step);
    }
    ptx::barrier_wait(&shared.full[ring.stage], ring.parity);
    Head& head = shared.head[ring.stage];
    for (; tile < tiles; tile += warpgroups) {
      attend<T, HeadDim, Left, Right>(call, head, index, tile, warpgroup);
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
  }
  if (leads) ptx::store_wait<0>();
}

template <class T, int HeadDim, int Left, int Right>
void forward(const FlashShape& shape, const FlashOperands& o, void* y, float* lse,
             cudaStream_t stream) {
  const auto map = [&](const void* base, std::int64_t heads, std::int64_t stride, int rows) {
    return head_map(shape.dtype, base, shape.batch, shape.seq, heads, shape.head_dim, stride, rows);
  };
  const WholeForward<T> call{map(o.q, shape.n_heads, o.q_stride, warpgroup_rows),
                             map(o.k, shape.n_kv_heads, o.k_stride, Left + Right),
                             map(o.v, shape.n_kv_heads, o.v_stride, Left + Right),
                             map(y, shape.n_heads, shape.n_heads * shape.head_dim, warpgroup_rows),
                             lse,
                             static_cast<int>(shape.seq),
                             static_cast<int>(shape.n_heads),
                             static_cast<int>(shape.n_kv_heads),
                             static_cast<int>(shape.n_heads * shape.batch),
                             shape.scale * log2e};
  constexpr std::size_t bytes = sizeof(WholeShared<WholeHead<T, HeadDim, Left, Right>>);
  const auto kernel = whole_forward_kernel<T, HeadDim, Left, Right>;
  allow_shared_memory(kernel, bytes);
  launch_early(kernel, dim3(static_cast<unsigned>(std::min(multiprocessors(), call.heads))),
               threads, bytes, stream, call);
  check(last_error(), "flash attention of whole heads");
}

template <class T, int HeadDim>
void forward(const FlashShape& shape, const FlashOperands& o, void* y, float* lse,
             cudaStream_t stream) {
  if (shape.seq <= 208)
    forward<T, HeadDim, 112, 96>(shape, o, y, lse, stream);
  else
    forward<T, HeadDim, 128, 128>(shape, o, y, lse, stream);
}

}  // namespace

void forward_whole(const FlashShape& shape, const FlashOperands& o, void* y, float* lse,
                   cudaStream_t stream) {
  with_element(shape, [&]<class T>() {
    shape.head_dim == 64 ? forward<T, 64>(shape, o, y, lse, stream)
                         : forward<T, 32>(shape, o, y, lse, stream);
  });
}

}  // namespace ridge::gpu::sm90
