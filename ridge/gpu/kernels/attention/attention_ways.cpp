#include "ridge/gpu/kernels/attention/attention_ways.h"

#include <fmt/format.h>

#include "ridge/base/error.h"
#include "ridge/gpu/device/kernel_ways.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {
namespace {

constexpr int oldest_card = 80;  // compute capability of those that multiply bf16

std::string version_or_nothing(Dnn& dnn) {
  try {
    return dnn.version();
  } catch (const DeviceError&) {
    return {};  // who needs it hears of it from ridge doctor
  }
}

}  // namespace

KernelPtr fastest_attention(std::string_view name, const AttentionHeads& op, bool packed,
                            GpuPrepare& prepare, const PrepareKernel& own,
                            const PrepareKernel& fused) {
  const FlashShape shape = flash_shape(op, prepare.in);
  const DType dtype = prepare.in[0].dtype;
  if (!prepare.choice.tuner || prepare.gpu.compute_capability < oldest_card ||
      !prepare.gpu.dnn->supports(dtype, shape))
    return own(prepare);
  const std::string library = version_or_nothing(*prepare.gpu.dnn);
  if (library.empty()) return own(prepare);
  const std::string work = fmt::format("{} {}[{} x {}, {}/{} heads of {}]{}", name, name_of(dtype),
                                       shape.batch, shape.seq, shape.n_heads, shape.n_kv_heads,
                                       shape.head_dim, shape.causal ? "" : " without mask");
  const std::string key = fmt::format("{} {}{}{}{}", library, work, packed ? " packed" : "",
                                      op.rope_theta != 0.0f ? " turned" : "",
                                      prepare.gpu.deterministic ? " deterministic" : "");
  return fastest_kernel(prepare, key, work, {{"own kernels", own}, {library, fused}});
}

}  // namespace ridge::gpu
