#include "ridge/ops/attention.h"

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/attention_forward.h"
#include "ridge/gpu/kernels/attention/attention_fused.h"
#include "ridge/gpu/kernels/attention/attention_rotary.h"
#include "ridge/gpu/kernels/attention/attention_table.h"

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
  const gpu::RotaryPass<T, float> rotary(op, batch, seq, prepare);
  const gpu::AttentionShape shape = gpu::attention_shape(op, batch, seq);
  const dim3 grid(static_cast<unsigned>(op.n_heads), static_cast<unsigned>(batch),
                  gpu::blocks_for(seq, Tile::rows));
  return make_kernel([=, &gpu = prepare.gpu](const Launch& call) {
    auto operand = [&](const HeadColumns& x) {
      return gpu::head_rows(call.in<T>(x.operand) + x.offset, x.stride, op.head_dim);
    };
    const auto rotated = rotary(gpu, operand(at.q), operand(at.k), call.workspace);
    const gpu::ForwardOperands<T> io{.q = rotated.q,
                                     .k = rotated.k,
                                     .v = operand(at.v),
                                     .y = gpu::head_rows(call.out<T>(0), op.q_dim(), op.head_dim),
                                     .lse = call.out<float>(1)};
    gpu::launch(gpu, kernel, grid, dim3(Tile::threads), shared, shape, io);
  });
}

using Work = gpu::AttentionWork<Attention>;

KernelPtr portable(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_floating(work.dtype(), [&]<class T>() {
    return gpu::dispatch_columns(
        work.op.head_dim, [&]<int Columns>() { return forward<T, Columns>(work.op, prepare); });
  });
}

#if defined(__HIP__)
constexpr gpu::PrepareAttention<Attention> by_sm90 = nullptr, by_scaling = nullptr;
#else
KernelPtr by_sm90(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_16_bit(work.dtype(), [&]<class T>() {
    return gpu::sm90_attention<T>(work.op, work.layout, prepare);
  });
}

KernelPtr by_scaling(const Work& work, GpuPrepare& prepare) {
  return gpu::scaled_attention(work.op, work.layout, prepare);
}
#endif

KernelPtr by_library(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_16_bit(work.dtype(), [&]<class T>() {
    return gpu::fused_attention<T>(work.op, work.layout, prepare);
  });
}

constexpr auto& candidates =
    gpu::attention_candidates<Attention, by_sm90, by_scaling, portable, by_library>;

}  // namespace

KernelPtr Attention::gpu(GpuPrepare& prepare) const {
  const Work work(*this, prepare, prepare.in.size() == 1);
  return gpu::best_kernel<Work>(prepare, work, candidates);
}

}  // namespace ridge
