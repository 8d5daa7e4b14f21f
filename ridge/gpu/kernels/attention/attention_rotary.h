#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/attention_tiles.h"
#include "ridge/gpu/kernels/attention/rotations.h"
#include "ridge/gpu/kernels/elementwise.h"
#include "ridge/gpu/kernels/nest.h"
#include "ridge/ops/attention.h"

namespace ridge::gpu {

// The queries and keys of attention, rotated by the rotary embedding.
template <class In, class Out>
struct RotationOperands {
  HeadRows<const In> q, k;
  HeadRows<Out> rotated_q, rotated_k;  // as wide or wider: the columns beyond are 0
  const float2* rotations;             // [seq, width / 2]; null: as they are
  float direction = 1;                 // -1: back
};

// Rotates the pairs of columns c .. c + 3 of position s; backwards with direction -1 instead of
// 1.
__device__ inline void rotate_columns(float (&x)[4], const float2* rotations, int s, int c,
                                      int width, float direction) {
#pragma unroll
  for (int e = 0; e < 4; e += 2)
    if (c + e < width) {
      const float2 rotation = rotations[(static_cast<std::int64_t>(s) * width + c + e) / 2];
      const float x0 = x[e], x1 = x[e + 1], sin = rotation.y * direction;
      x[e] = x0 * rotation.x - x1 * sin;
      x[e + 1] = x0 * sin + x1 * rotation.x;
    }
}

template <class In, class Out>
__device__ inline void rotate_head(const HeadRows<const In>& from, const HeadRows<Out>& to,
                                   const float2* rotations, float direction, std::int64_t position,
                                   int s, int head, int c) {
  float x[4];
  load_columns(from.at(position, head), c, from.width, from.vector, x);
  if (rotations) rotate_columns(x, rotations, s, c, from.width, direction);
  store_columns(to.at(position, head), c, to.width, to.vector, x);
}

inline constexpr int rotary_threads = 256, rotations_per_thread = 2;

// Each thread rotates four columns. The heads of the keys follow those of the queries.
template <class In, class Out>
__global__ void __launch_bounds__(rotary_threads)
    rotate_heads(RotationOperands<In, Out> io, std::int64_t positions, int seq, int n_heads,
                 int n_kv_heads) {
  begin_kernel();
  const std::int64_t thread =
      static_cast<std::int64_t>(blockIdx.x) * rotary_threads + static_cast<int>(threadIdx.x);
  const int packs = (io.rotated_q.width + 3) / 4, each = (n_heads + n_kv_heads) * packs;
  const std::int64_t position = thread / each;
  if (position >= positions) return;
  const int in_position = static_cast<int>(thread - position * each);
  const int head = in_position / packs, c = in_position % packs * 4;
  const int s = static_cast<int>(position % seq);
  if (head < n_heads)
    rotate_head(io.q, io.rotated_q, io.rotations, io.direction, position, s, head, c);
  else
    rotate_head(io.k, io.rotated_k, io.rotations, io.direction, position, s, head - n_heads, c);
}

// The same for rows in packs of N columns, several a thread.
template <int N, class T, class Index>
__global__ void __launch_bounds__(rotary_threads)
    rotate_packed_heads(RotationOperands<T, T> io, Index packs, Index packs_per_head, Index seq,
                        int n_heads, int n_kv_heads) {
  begin_kernel();
  const Index first =
      static_cast<Index>(blockIdx.x) * (rotary_threads * rotations_per_thread) + threadIdx.x;
  const Index each = static_cast<Index>(n_heads + n_kv_heads) * packs_per_head;
  float x[rotations_per_thread][N], rotates[rotations_per_thread][N];
  T* to[rotations_per_thread];
#pragma unroll
  for (int k = 0; k < rotations_per_thread; ++k) {
    const Index pack = first + k * rotary_threads;
    if (pack >= packs) continue;
    const Index position = pack / each, in_position = pack - position * each;
    const auto head = static_cast<int>(in_position / packs_per_head);
    const auto c = static_cast<int>(in_position % packs_per_head) * N;
    const bool is_query = head < n_heads;
    const auto& from = is_query ? io.q : io.k;
    const auto& out = is_query ? io.rotated_q : io.rotated_k;
    const int own = is_query ? head : head - n_heads;
    load_pack<N>(from.at(position, own) + c, x[k]);
    load_pack<N>(reinterpret_cast<const float*>(io.rotations) +
                     static_cast<std::int64_t>(position % seq) * from.width + c,
                 rotates[k]);
    to[k] = out.at(position, own) + c;
  }
#pragma unroll
  for (int k = 0; k < rotations_per_thread; ++k) {
    if (first + k * rotary_threads >= packs) continue;
    float rotated[N];
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float cos = rotates[k][i], sin = rotates[k][i + 1] * io.direction;
      rotated[i] = x[k][i] * cos - x[k][i + 1] * sin;
      rotated[i + 1] = x[k][i] * sin + x[k][i + 1] * cos;
    }
    store_pack<N>(to[k], rotated);
  }
}

// The queries and keys that the kernels read: rotated copies, or the operands themselves.
template <class T>
struct RotatedHeads {
  HeadRows<const T> q, k;
};

// Rotates the queries and keys of attention into dense rows of `Out` in the workspace, before the
// kernel proper; operands that need neither a rotation nor a conversion stay where they are, and so
// they do if the kernel proper `rotates` them.
template <class In, class Out>
class RotaryPass {
 public:
  // Adds the bytes that it needs to the workspace.
  RotaryPass(const AttentionHeads& heads, std::int64_t batch, std::int64_t seq, GpuPrepare& prepare,
             bool rotates = false)
      : heads_(heads), positions_(batch * seq), seq_(seq), rotates_(rotates) {
    if (heads.rope_theta != 0.0f)
      table_ = prepare.gpu.rotations->get(prepare.gpu, heads.rope_theta, heads.head_dim / 2, seq);
    if (!needed()) return;
    const std::size_t row = static_cast<std::size_t>(positions_ * width()) * sizeof(Out);
    q_ = reserve(prepare.workspace, row * static_cast<std::size_t>(heads.n_heads));
    k_ = reserve(prepare.workspace, row * static_cast<std::size_t>(heads.n_kv_heads));
  }

  bool rotates() const { return rotates_; }
  // cos and sin, [seq, head_dim / 2]; null without rotary embedding.
  const float2* rotations() const { return table_ ? table_->table.data<float2>() : nullptr; }

  RotatedHeads<Out> operator()(const Context& gpu, const HeadRows<const In>& q,
                               const HeadRows<const In>& k, void* workspace) const {
    if constexpr (std::is_same_v<In, Out>)
      if (!needed()) return {q, k};
    auto rows = [&](std::size_t offset, std::int64_t n_heads) {
      return head_rows(reinterpret_cast<Out*>(static_cast<std::byte*>(workspace) + offset),
                       n_heads * width(), width());
    };
    const RotationOperands<In, Out> io{.q = q,
                                       .k = k,
                                       .rotated_q = rows(q_, heads_.n_heads),
                                       .rotated_k = rows(k_, heads_.n_kv_heads),
                                       .rotations = rotations()};
    launch_rotation(gpu, io);
    return {constant(io.rotated_q), constant(io.rotated_k)};
  }

  // How far apart the rows of queries and of keys are then, if they were `stride` apart before.
  std::int64_t q_stride(std::int64_t stride) const {
    return needed() ? heads_.n_heads * width() : stride;
  }
  std::int64_t k_stride(std::int64_t stride) const {
    return needed() ? heads_.n_kv_heads * width() : stride;
  }

  // Rotates gradients of rotated queries and keys back, where they are.
  void back(const Context& gpu, const HeadRows<Out>& dq,
            const HeadRows<Out>& dk) const requires std::is_same_v<In, Out> {
    if (!table_) return;
    launch_rotation(gpu, {.q = constant(dq),
                          .k = constant(dk),
                          .rotated_q = dq,
                          .rotated_k = dk,
                          .rotations = rotations(),
                          .direction = -1});
  }

 private:
  void launch_rotation(const Context& gpu, const RotationOperands<In, Out>& io) const {
    const auto n_heads = static_cast<int>(heads_.n_heads);
    const auto n_kv_heads = static_cast<int>(heads_.n_kv_heads);
    if constexpr (std::is_same_v<In, Out>) {
      constexpr int wide = elements_per_access<In>;
      if (is_packed<wide>(io)) {
        const std::int64_t packs = positions_ * (n_heads + n_kv_heads) * width() / wide;
        return dispatch_index(packs, [&]<class Index>() {
          launch(gpu, rotate_packed_heads<wide, In, Index>,
                 dim3(blocks_for(packs, rotary_threads * rotations_per_thread)),
                 dim3(rotary_threads), 0, io, static_cast<Index>(packs),
                 static_cast<Index>(width() / wide), static_cast<Index>(seq_), n_heads, n_kv_heads);
        });
      }
    }
    const std::int64_t packs = positions_ * (n_heads + n_kv_heads) * width() / 4;
    launch(gpu, rotate_heads<In, Out>, dim3(blocks_for(packs, rotary_threads)),
           dim3(rotary_threads), 0, io, positions_, static_cast<int>(seq_), n_heads, n_kv_heads);
  }
  template <int N>
  static bool is_packed(const RotationOperands<In, Out>& io) {
    const auto packed = [](const auto& rows) {
      return is_aligned(rows.data, N * sizeof(In)) && rows.stride % N == 0 && rows.width % N == 0;
    };
    return io.rotations && packed(io.q) && packed(io.k) && packed(io.rotated_q) &&
           packed(io.rotated_k);
  }
  bool needed() const {
    return (heads_.rope_theta != 0.0f && !rotates_) || !std::is_same_v<In, Out>;
  }
  // The columns of a rotated head, padded to packs of four.
  std::int64_t width() const { return (heads_.head_dim + 3) / 4 * 4; }

  AttentionHeads heads_;
  std::int64_t positions_, seq_;
  bool rotates_;
  std::shared_ptr<const Rotations> table_;
  std::size_t q_ = 0, k_ = 0;  // where they start in the workspace
};

}  // namespace ridge::gpu
