#include "ridge/gpu/kernels/attention/attention_backward.h"
#include "ridge/gpu/kernels/attention/attention_fused.h"
#if !defined(__HIP__)
#include "ridge/gpu/kernels/attention/attention_scaled.h"
#include "ridge/gpu/kernels/attention/attention_sm90.h"
#endif
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/attention_rotary.h"
#include "ridge/ops/attention.h"

namespace ridge {
namespace {

constexpr std::size_t first_of_qkv = 3;  // after dy, y and lse

template <class T, int Columns>
KernelPtr backward(const AttentionGrad& op, GpuPrepare& prepare) {
  using Tile = typename gpu::AttentionTiles<Columns>::Backward;
  constexpr std::size_t shared = gpu::backward_shared_bytes<Tile>();
  constexpr auto kernel = gpu::attention_backward<Tile, T>;
  constexpr bool sum_in_place = std::is_same_v<T, float>;
  gpu::check_head_dim(op.name, op.head_dim, shared, prepare.gpu);
  gpu::allow_shared_memory(kernel, shared);
  const std::int64_t batch = prepare.in[0].shape[0], seq = prepare.in[0].shape[1];
  const AttentionLayout at = attention_layout(op, prepare.in.size() == first_of_qkv + 1);
  const gpu::RotaryPass<T, float> turn(op, batch, seq, prepare);
  const gpu::AttentionShape shape = gpu::attention_shape(op, batch, seq);
  const std::int64_t rows = batch * seq * op.n_heads, n_turns = gpu::backward_turns<Tile>(shape);
  const std::size_t delta = gpu::reserve(prepare.workspace, rows * sizeof(float));
  const std::size_t turns = gpu::reserve(prepare.workspace, n_turns * sizeof(int));
  const std::size_t sums =
      sum_in_place ? 0 : gpu::reserve(prepare.workspace, rows * op.head_dim * sizeof(float));
  const unsigned blocks =
      static_cast<unsigned>(batch * op.n_kv_heads) * gpu::blocks_for(seq, Tile::rows);
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto operand = [&](const HeadColumns& x) {
      return gpu::head_rows(call.in<T>(first_of_qkv + x.operand) + x.offset, x.stride, op.head_dim);
    };
    auto result = [&](const HeadColumns& x) {
      return gpu::head_rows(call.out<T>(x.operand) + x.offset, x.stride, op.head_dim);
    };
    auto of_queries = [&](auto* data) { return gpu::head_rows(data, op.q_dim(), op.head_dim); };
    auto* memory = static_cast<std::byte*>(call.workspace);
    const auto turned = turn(gpu, operand(at.q), operand(at.k), memory);
    gpu::BackwardOperands<T> io{.q = turned.q,
                                .k = turned.k,
                                .v = operand(at.v),
                                .dy = of_queries(call.in<T>(0)),
                                .lse = call.in<float>(2),
                                .delta = reinterpret_cast<float*>(memory + delta),
                                .dq = result(at.q),
                                .dk = result(at.k),
                                .dv = result(at.v),
                                .rotations = turn.rotations(),
                                .turns = reinterpret_cast<int*>(memory + turns)};
    if constexpr (sum_in_place)
      io.sum = io.dq;
    else
      io.sum = of_queries(reinterpret_cast<float*>(memory + sums));
    gpu::launch(gpu, gpu::attention_delta<T>,
                dim3(gpu::blocks_for(rows * gpu::delta_lanes, gpu::delta_threads)),
                dim3(gpu::delta_threads), 0, io.dy, of_queries(call.in<T>(1)),
                reinterpret_cast<float*>(memory + delta), shape, io.turns, n_turns);
    gpu::launch(gpu, kernel, dim3(blocks), dim3(Tile::threads), shared, shape, io);
  });
}

}  // namespace

KernelPtr AttentionGrad::gpu(GpuPrepare& prepare) const {
  const bool packed = prepare.in.size() == first_of_qkv + 1;
  const AttentionLayout at = attention_layout(*this, packed);
  const auto own = [&](GpuPrepare& p) {
    return gpu::dispatch_floating(p.in[0].dtype, [&]<class T>() {
#if !defined(__HIP__)
      if constexpr (sizeof(T) == 2)
        if (gpu::hopper_takes(*this, at, p))
          return gpu::hopper_attention_grad<T>(*this, at, first_of_qkv, p);
      if constexpr (sizeof(T) == 4)
        if (gpu::scaled_takes(*this, p))
          return gpu::scaled_attention_grad(*this, at, first_of_qkv, p);
#endif
      return gpu::dispatch_columns(head_dim,
                                   [&]<int Columns>() { return backward<T, Columns>(*this, p); });
    });
  };
  const auto fused = [&](GpuPrepare& p) {
    return gpu::dispatch_floating(p.in[0].dtype, [&]<class T>() {
      if constexpr (sizeof(T) == 2)
        return gpu::fused_attention_grad<T>(*this, at, first_of_qkv, p);
      else
        return own(p);  // the library takes types of 16 bits only
    });
  };
  return gpu::fastest_attention(name, *this, packed, prepare, own, fused);
}

}  // namespace ridge
