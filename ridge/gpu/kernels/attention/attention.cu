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

#if !defined(__HIP__)
using gpu::FlashForward;

template <FlashForward kernel>
KernelPtr by_flash(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_16_bit(work.dtype(), [&]<class T>() {
    return gpu::sm90_attention<T>(kernel, work.op, work.layout, prepare);
  });
}
template <FlashForward kernel>
KernelPtr by_scaling(const Work& work, GpuPrepare& prepare) {
  return gpu::scaled_attention(kernel, work.op, work.layout, prepare);
}

template <FlashForward kernel>
constexpr auto flash = gpu::flash_attention<Attention, kernel, by_flash<kernel>>;
template <FlashForward kernel>
constexpr auto scaled = gpu::scaled_flash_attention<Attention, kernel, by_scaling<kernel>>;
#endif

KernelPtr by_library(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_16_bit(work.dtype(), [&]<class T>() {
    return gpu::fused_attention<T>(work.op, work.layout, prepare);
  });
}

constexpr gpu::Candidate<Work> candidates[] = {
#if !defined(__HIP__)
    flash<FlashForward::one_tile>,
    flash<FlashForward::whole_heads>,
    flash<FlashForward::whole_tiles>,
    flash<FlashForward::two_warpgroups>,
    flash<FlashForward::three_warpgroups>,
    scaled<FlashForward::two_warpgroups>,
    scaled<FlashForward::three_warpgroups>,
#endif
    gpu::portable_attention<Attention, portable>,
    gpu::library_attention<Attention, by_library>,
};

}  // namespace

KernelPtr Attention::gpu(GpuPrepare& prepare) const {
  const Work work(*this, prepare, prepare.in.size() == 1);
  return gpu::best_kernel<Work>(prepare, work, candidates);
}

}  // namespace ridge
