#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/kernels/attention/attention_backward.h"
#include "ridge/gpu/kernels/attention/attention_fused.h"
#include "ridge/gpu/kernels/attention/attention_rotary.h"
#include "ridge/gpu/kernels/attention/attention_table.h"
#include "ridge/ops/attention.h"

namespace ridge {
namespace {

constexpr AttentionGrad::Operands given;

template <class T, int Columns>
KernelPtr backward(const AttentionGrad& op, GpuPrepare& prepare) {
  using Tile = typename gpu::AttentionTiles<Columns>::Backward;
  constexpr std::size_t shared = gpu::backward_shared_bytes<Tile>();
  constexpr auto kernel = gpu::attention_backward<Tile, T>;
  constexpr bool sum_in_place = std::is_same_v<T, float>;
  gpu::check_head_dim(op.name, op.head_dim, shared, prepare.gpu);
  gpu::allow_shared_memory(kernel, shared);
  const std::int64_t batch = prepare.in[0].shape[0], seq = prepare.in[0].shape[1];
  const AttentionLayout at = attention_layout(op, prepare.in.size() == given.q + 1);
  const gpu::RotaryPass<T, float> rotary(op, batch, seq, prepare);
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
      return gpu::head_rows(call.in<T>(given.q + x.operand) + x.offset, x.stride, op.head_dim);
    };
    auto result = [&](const HeadColumns& x) {
      return gpu::head_rows(call.out<T>(x.operand) + x.offset, x.stride, op.head_dim);
    };
    auto of_queries = [&](auto* data) { return gpu::head_rows(data, op.q_dim(), op.head_dim); };
    auto* memory = static_cast<std::byte*>(call.workspace);
    const auto rotated = rotary(gpu, operand(at.q), operand(at.k), memory);
    gpu::BackwardOperands<T> io{.q = rotated.q,
                                .k = rotated.k,
                                .v = operand(at.v),
                                .dy = of_queries(call.in<T>(given.dy)),
                                .lse = call.in<float>(given.lse),
                                .delta = reinterpret_cast<float*>(memory + delta),
                                .dq = result(at.q),
                                .dk = result(at.k),
                                .dv = result(at.v),
                                .rotations = rotary.rotations(),
                                .turns = reinterpret_cast<int*>(memory + turns)};
    if constexpr (sum_in_place)
      io.sum = io.dq;
    else
      io.sum = of_queries(reinterpret_cast<float*>(memory + sums));
    gpu::launch(gpu, gpu::attention_delta<T>,
                dim3(gpu::blocks_for(rows * gpu::delta_lanes, gpu::delta_threads)),
                dim3(gpu::delta_threads), 0, io.dy, of_queries(call.in<T>(given.y)),
                reinterpret_cast<float*>(memory + delta), shape, io.turns, n_turns);
    gpu::launch(gpu, kernel, dim3(blocks), dim3(Tile::threads), shared, shape, io);
  });
}

using Work = gpu::AttentionWork<AttentionGrad>;

KernelPtr portable(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_floating(work.dtype(), [&]<class T>() {
    return gpu::dispatch_columns(
        work.op.head_dim, [&]<int Columns>() { return backward<T, Columns>(work.op, prepare); });
  });
}

#if !defined(__HIP__)
using gpu::FlashBackward;

template <FlashBackward kernel>
KernelPtr by_flash(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_16_bit(work.dtype(), [&]<class T>() {
    return gpu::sm90_attention_grad<T>(kernel, work.op, work.layout, given.q, prepare);
  });
}

KernelPtr by_scaling(const Work& work, GpuPrepare& prepare) {
  return gpu::scaled_attention_grad(work.op, work.layout, given.q, prepare);
}

template <FlashBackward kernel>
constexpr auto flash = gpu::flash_attention<AttentionGrad, kernel, by_flash<kernel>>;
#endif

KernelPtr by_library(const Work& work, GpuPrepare& prepare) {
  return gpu::dispatch_16_bit(work.dtype(), [&]<class T>() {
    return gpu::fused_attention_grad<T>(work.op, work.layout, given.q, prepare);
  });
}

constexpr gpu::Candidate<Work> candidates[] = {
#if !defined(__HIP__)
    flash<FlashBackward::one_tile>,
    flash<FlashBackward::separate>,
    flash<FlashBackward::summed>,
    gpu::scaled_flash_attention<AttentionGrad, FlashBackward::separate, by_scaling>,
#endif
    gpu::portable_attention<AttentionGrad, portable>,
    gpu::library_attention<AttentionGrad, by_library>,
};

}  // namespace

KernelPtr AttentionGrad::gpu(GpuPrepare& prepare) const {
  const Work work(*this, prepare, prepare.in.size() == given.q + 1);
  return gpu::best_kernel<Work>(prepare, work, candidates);
}

}  // namespace ridge
