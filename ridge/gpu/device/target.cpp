#include "ridge/gpu/device/target.h"

#include <string>

namespace ridge::gpu {

Target target_of(int compute_capability, std::string_view hardware) {
  return {.kind = DeviceKind::gpu,
          .description = "cuda, " + std::string(hardware),
          .multiplies_float8 = compute_capability >= 89,
          .multiplies_float16 = true,
          // The engine that copies tiles takes pixels of a multiple of 16 bytes, and our kernels no
          // groups.
          .int8 = {.channel_multiple = 16, .groups = false},
          .widest_head = widest_head,
          // Memory moves in lines of 128 bytes, and products are slower where rows begin within a
          // pair of them.
          .alignment = 256,
          // Some 10 us at the 790 TFLOP/s that products reach on an H100, or 8 us at 3 TB/s.
          .filling_flops = 8e9,
          .filling_bytes = 24e6};
}

}  // namespace ridge::gpu
