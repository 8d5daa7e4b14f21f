#include "ridge/gpu/sm90/attention/flash_backward.h"

#include "ridge/gpu/sm90/attention/flash_short.h"

namespace ridge::gpu {
namespace {

using sm90::BackwardCall;

std::size_t align(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t rows(const FlashShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.n_heads * sm90::padded_seq(shape));
}

std::size_t bytes_of_stats(const FlashShape& shape) { return align(rows(shape) * sizeof(float2)); }

}  // namespace

std::size_t flash_sm90_workspace(FlashBackward kernel, const FlashShape& shape) {
  if (kernel == FlashBackward::one_tile) return 0;
  if (kernel == FlashBackward::separate) return bytes_of_stats(shape);
  return bytes_of_stats(shape) +
         rows(shape) * static_cast<std::size_t>(shape.head_dim) * sizeof(float);
}

void flash_sm90_backward(FlashBackward kernel, const FlashShape& shape,
                         const FlashOperands& operands, const void* y, const float* lse,
                         const void* dy, const FlashGradients& gradients, void* workspace,
                         Stream stream) {
  auto* const memory = static_cast<std::byte*>(workspace);
  auto* const stats = reinterpret_cast<float2*>(memory);
  const BackwardCall call{shape, operands, y, lse, dy, gradients, stream};
  switch (kernel) {
    case FlashBackward::one_tile:
      return sm90::backward_short(call);
    case FlashBackward::separate:
      sm90::backward_queries(call, stats);
      return sm90::backward_keys(call, stats);
    case FlashBackward::summed:
      return sm90::backward_summed(call, stats,
                                   reinterpret_cast<float*>(memory + bytes_of_stats(shape)));
  }
}

void flash_sm90_scaled_backward(const ScaledFlash& f, const float* lse, const float* delta,
                                const void* dy, const float* dy_scale,
                                const FlashGradients& gradients, void* workspace, Stream stream) {
  const BackwardCall call{.shape = f.shape,
                          .operands = f.operands,
                          .y = nullptr,
                          .lse = lse,
                          .dy = dy,
                          .gradients = gradients,
                          .stream = stream,
                          .scale = f.scale,
                          .dy_scale = dy_scale,
                          .delta = delta};
  auto* const stats = static_cast<float2*>(workspace);
  sm90::backward_queries(call, stats);
  sm90::backward_keys(call, stats);
}

}  // namespace ridge::gpu
