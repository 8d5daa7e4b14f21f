#include "ridge/ops/heads.h"

#include <memory>

#include "ridge/gpu/kernels/attention/rotations.h"
#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"

namespace ridge {
namespace {

using namespace gpu;

// Where heads lie, and what rotates them: null without rotary embedding.
template <class T, class Index>
struct Heads {
  T* packed;   // [batch, seq, columns]
  T* part[3];  // q, k, v, each [batch, its heads, seq, head_dim]
  Index packs, seq, columns, head_dim;
  Index count[3];  // heads of q, k and v
  const float2* rotations;
};

template <int N>
__device__ void rotate(float (&x)[N], const float2* angles, float direction) {
  float cos_sin[N];
  load_pack<N>(reinterpret_cast<const float*>(angles), cos_sin);
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float x0 = x[i], x1 = x[i + 1], cos = cos_sin[i], sin = cos_sin[i + 1] * direction;
    x[i] = x0 * cos - x1 * sin;
    x[i + 1] = x0 * sin + x1 * cos;
  }
}

// Splits packed into heads, or merges heads into packed: N consecutive elements of one head a
// thread, in one access if they are aligned to that.
template <int N, bool split, class T, class Index>
__global__ void __launch_bounds__(elementwise_threads)
    heads_kernel(const __grid_constant__ Heads<T, Index> heads, bool aligned) {
  gpu::begin_kernel();
  const Index pack = thread_index<Index>();
  if (pack >= heads.packs) return;
  const Index token = pack * N / heads.columns, column = pack * N - token * heads.columns;
  const Index batch = token / heads.seq, position = token - batch * heads.seq;
  Index head = column / heads.head_dim;
  const Index element = column - head * heads.head_dim;
  int operand = 0;
  while (head >= heads.count[operand]) head -= heads.count[operand++];
  const Index row = (batch * heads.count[operand] + head) * heads.seq + position;
  T* const in_part = heads.part[operand] + row * heads.head_dim + element;
  T* const in_packed = heads.packed + pack * N;
  const T* const from = split ? in_packed : in_part;
  T* const to = split ? in_part : in_packed;

  float x[N];
  if (aligned) {
    load_pack<N>(from, x);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = load(&from[i]);
  }
  if constexpr (N > 1) {
    if (heads.rotations && operand < 2)
      rotate(x, heads.rotations + (position * heads.head_dim + element) / 2, split ? 1.0f : -1.0f);
  }
  if (aligned) {
    store_pack<N>(to, x);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) store(&to[i], x[i]);
  }
}

template <bool split, class T>
KernelPtr move_heads(GpuPrepare& prepare, const HeadLayout& layout) {
  const Shape& shape = split ? prepare.in[0].shape : prepare.out[0].shape;
  const std::int64_t n = shape.numel(), seq = shape[1];
  std::shared_ptr<const Rotations> table;
  if (layout.rope_theta != 0)
    table = prepare.gpu.rotations->get(prepare.gpu, layout.rope_theta, layout.head_dim / 2, seq);
  return dispatch_index(n, [&]<class Index>() {
    return make_kernel([&gpu = prepare.gpu, n, seq, layout, table](const Launch& call) {
      constexpr int wide = elements_per_access<T>;
      // Merging, the packed tensor alone is written.
      const auto part = [&](std::size_t i) {
        return split ? call.out<T>(i) : const_cast<T*>(call.in<T>(i));
      };
      Heads<T, Index> heads{
          .packed = split ? const_cast<T*>(call.in<T>(0)) : call.out<T>(),
          .part = {part(0), part(1), part(2)},
          .packs = static_cast<Index>(n),
          .seq = static_cast<Index>(seq),
          .columns = static_cast<Index>(layout.columns()),
          .head_dim = static_cast<Index>(layout.head_dim),
          .count = {static_cast<Index>(layout.n_heads), static_cast<Index>(layout.n_kv_heads),
                    static_cast<Index>(layout.n_kv_heads)},
          .rotations = table ? table->table.data<float2>() : nullptr};
      bool aligned = layout.head_dim % wide == 0 && is_aligned(heads.packed, wide * sizeof(T));
      for (const T* p : heads.part) aligned = aligned && is_aligned(p, wide * sizeof(T));
      const auto run = [&]<int N>() {
        heads.packs /= N;
        launch(gpu, heads_kernel<N, split, T, Index>,
               dim3(blocks_for(heads.packs, elementwise_threads)), dim3(elementwise_threads), 0,
               heads, aligned);
      };
      if (aligned)
        run.template operator()<wide>();
      else if (table)
        run.template operator()<2>();
      else
        run.template operator()<1>();
    });
  });
}

}  // namespace

KernelPtr SplitHeads::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return move_heads<true, T>(prepare, layout); });
}

KernelPtr MergeHeads::gpu(GpuPrepare& prepare) const {
  return dispatch_floating(prepare.in[0].dtype,
                           [&]<class T>() { return move_heads<false, T>(prepare, layout); });
}

}  // namespace ridge
