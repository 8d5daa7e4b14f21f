#include "ridge/gpu/device/target.h"

#include <fmt/format.h>

namespace ridge::gpu {

Target target_of(const Card& card, std::string_view hardware, std::string_view device) {
  const Crossovers& at = card.crossovers();
  Target target{.kind = DeviceKind::gpu,
                .description = fmt::format("{}, {}", device, hardware),
                .multiplies_float8 = card.multiplies_float8(),
                .multiplies_float16 = true,
                // The engine that copies tiles takes pixels of a multiple of 16 bytes, and our
                // kernels no groups.
                .int8 = {.channel_multiple = 16, .groups = false},
                .widest_head = widest_head,
                .most_squeeze_weights = at.most_squeeze_weights,
                .least_aligned_rows = at.least_aligned_rows,
                .least_update_bytes = at.least_update_bytes,
                // Few large messages disturb the kernels beside them least, and an eighth of all
                // gradients is little to send when the rest is done. NCCL takes about as long for
                // fewer bytes than 1 MiB.
                .bucket_bytes = std::size_t{1} << 20,
                .most_bucket_bytes = std::size_t{128} << 20,
                .buckets = 8,
                .alignment = arena_alignment,
                .lingering = {.nodes = at.lingering_nodes, .most_bytes = at.lingering_bytes},
                .filling_flops = at.filling_flops,
                .filling_bytes = at.filling_bytes};
  if (card.is_sm90())
    target.bottleneck = {.channels = sm90_bottleneck_channels,
                         .most_expanded = sm90_bottleneck_expanded};
  return target;
}

}  // namespace ridge::gpu
