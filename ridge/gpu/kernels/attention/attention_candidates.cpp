#include "ridge/gpu/kernels/attention/attention_candidates.h"

#include <fmt/format.h>

#include "ridge/gpu/kernels/attention/window_sm90.h"

namespace ridge::gpu {

bool library_supports_attention(const AttentionHeads& op, const GpuPrepare& prepare) {
  return prepare.gpu.card.multiplies_bf16() &&
         prepare.gpu.dnn->supports(prepare.in[0].dtype, flash_shape(op, prepare.in)) &&
         !version_or_nothing(*prepare.gpu.dnn).empty();
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
  return fmt::format("{} {}{}{}{}", version_or_nothing(*prepare.gpu.dnn),
                     attention_work(name, op, prepare), packed ? " packed" : "",
                     op.rope_theta != 0.0f ? " rotary" : "",
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
