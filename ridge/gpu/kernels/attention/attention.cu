#include "ridge/ops/attention.h"

#include "ridge/gpu/kernels/attention/attention_forward.h"
#include "ridge/gpu/kernels/attention/attention_fused.h"
#if !defined(__HIP__)
#include "ridge/gpu/kernels/attention/attention_scaled.h"
#include "ridge/gpu/kernels/attention/attention_sm90.h"
#endif
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/attention_rotary.h"

namespace ridge {
namespace {

template <class T, int Columns>
KernelPtr forward(const Attention& op, GpuPrepare& prepare) {
  using Tile = typename gpu::AttentionTiles<Columns>::Forward;
  constexpr std::size_t shared = gpu::forward_shared_bytes<Tile>();
  constexpr auto kernel = gpu::attention_forward<Tile, T>;
  gpu::check_head_dim(op.name, op.head_dim, shared, prepare.gpu);
  gpu::allow_shared_memory(kernel, shared);
  const std::int64_t batch = prepare.in[0].shape[0], seq = prepare.in[0].shape[1];
  const AttentionLayout at = attention_layout(op, prepare.in.size() == 1);
  const gpu::RotaryPass<T, float> turn(op, batch, seq, prepare);
  const gpu::AttentionShape shape = gpu::attention_shape(op, batch, seq);
  const dim3 grid(static_cast<unsigned>(op.n_heads), static_cast<unsigned>(batch),
                  gpu::blocks_for(seq, Tile::rows));
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto operand = [&](const HeadColumns& x) {
      return gpu::head_rows(call.in<T>(x.operand) + x.offset, x.stride, op.head_dim);
    };
    const auto turned = turn(gpu, operand(at.q), operand(at.k), call.workspace);
    const gpu::ForwardOperands<T> io{.q = turned.q,
                                     .k = turned.k,
                                     .v = operand(at.v),
                                     .y = gpu::head_rows(call.out<T>(0), op.q_dim(), op.head_dim),
                                     .lse = call.out<float>(1)};
    gpu::launch(gpu, kernel, grid, dim3(Tile::threads), shared, shape, io);
  });
}

}  // namespace

KernelPtr Attention::gpu(GpuPrepare& prepare) const {
  const bool packed = prepare.in.size() == 1;
  const AttentionLayout at = attention_layout(*this, packed);
  const auto own = [&](GpuPrepare& p) {
    return gpu::dispatch_floating(p.in[0].dtype, [&]<class T>() {
#if !defined(__HIP__)
      if constexpr (sizeof(T) == 2)
        if (gpu::hopper_takes(*this, at, p)) return gpu::hopper_attention<T>(*this, at, p);
      if constexpr (sizeof(T) == 4)
        if (gpu::scaled_takes(*this, p)) return gpu::scaled_attention(*this, at, p);
#endif
      return gpu::dispatch_columns(head_dim,
                                   [&]<int Columns>() { return forward<T, Columns>(*this, p); });
    });
  };
  const auto fused = [&](GpuPrepare& p) {
    return gpu::dispatch_floating(p.in[0].dtype, [&]<class T>() {
      if constexpr (sizeof(T) == 2)
        return gpu::fused_attention<T>(*this, at, p);
      else
        return own(p);  // the library takes types of 16 bits only
    });
  };
  return gpu::fastest_attention(name, *this, packed, prepare, own, fused);
}

}  // namespace ridge
