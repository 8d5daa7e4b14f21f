#include "ridge/gpu/kernels/attention/attention_candidates.h"

#include <fmt/format.h>

#include "ridge/gpu/kernels/attention/window_sm90.h"

namespace ridge::gpu {

bool library_supports_attention(const AttentionHeads& op, const GpuPrepare& prepare) {
  const Context& gpu = prepare.gpu;
  if (!gpu.card.multiplies_bf16() ||
      !gpu.dnn->supports(prepare.in[0].dtype, flash_shape(op, prepare.in)))
    return false;
  // What stands in for the library is for cards that have no kernels of their own.
  return !gpu.card.is_sm90() || !gpu.dnn->is_portable();
}

std::string attention_work(std::string_view name, const AttentionHeads& op,
                           const GpuPrepare& prepare) {
  const FlashShape shape = flash_shape(op, prepare.in);
  return fmt::format("{} {}[{} x {}, {}/{} heads of {}]{}", name, name_of(shape.dtype), shape.batch,
                     shape.seq, shape.n_heads, shape.n_kv_heads, shape.head_dim,
                     shape.causal ? "" : " without mask");
}

std::string attention_key(std::string_view name, const AttentionHeads& op, bool packed,
                          const GpuPrepare& prepare) {
  return fmt::format("{} {}{}{}{}", prepare.gpu.dnn->version(), attention_work(name, op, prepare),
                     packed ? " packed" : "", op.rope_theta != 0.0f ? " rotary" : "",
                     prepare.gpu.deterministic ? " deterministic" : "");
}

std::string window_work(DType dtype, const WindowShape& shape) {
  const WindowGrid& grid = shape.grid;
  const bool shifts = grid.shift_down != 0 || grid.shift_across != 0;
  return fmt::format(
      "{} {}[{} x {} x {}, {} heads of {}], windows of {} x {}{}{}", WindowAttention::name,
      name_of(dtype), shape.windows / grid.windows(), grid.height, grid.width, shape.n_heads,
      shape.head_dim, grid.side, grid.side,
      shifts ? fmt::format(" shifted by {}, {}", grid.shift_down, grid.shift_across) : "",
      grid.spread ? " spread" : "");
}

}  // namespace ridge::gpu
