#include "ridge/base/error.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/target.h"

namespace ridge::gpu {

void check_head_dim(std::string_view op, std::int64_t head_dim, std::size_t shared_bytes,
                    const Context& gpu) {
  if (head_dim > widest_head)
    throw DeviceError("{}: the GPU's kernels hold heads of up to {} columns, not {}", op,
                      widest_head, head_dim);
  if (shared_bytes > gpu.card.shared_per_block)
    throw DeviceError("{}: heads of {} columns need {} bytes of shared memory, and a block has {}",
                      op, head_dim, shared_bytes, gpu.card.shared_per_block);
}

}  // namespace ridge::gpu
