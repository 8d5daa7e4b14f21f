#include "ridge/gpu/sm90/attention/flash_backward.h"

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/sm90/attention/flash_short.h"

namespace ridge::gpu {
namespace {

using sm90::BackwardCall;

// Whether the scores are computed twice, for dQ and for dK and dV apart. That is always so in a
// fixed order; and faster as long as the float sums of dQ through memory would weigh more than the
// two further products.
bool is_separate(const FlashShape& shape, bool deterministic) {
  return deterministic ||
         shape.seq * shape.head_dim <= crossovers_of(90).separate_gradient_elements;
}

std::size_t align(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t rows(const FlashShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.n_heads * sm90::padded_seq(shape));
}

}  // namespace

std::size_t flash_sm90_backward_workspace(const FlashShape& shape) {
  if (sm90::is_short(shape)) return 0;
  const std::size_t stats = align(rows(shape) * sizeof(float2));
  if (is_separate(shape, false)) return stats;
  return stats + rows(shape) * static_cast<std::size_t>(shape.head_dim) * sizeof(float);
}

void flash_sm90_backward(const FlashShape& shape, const FlashOperands& operands, const void* y,
                         const float* lse, const void* dy, const FlashGradients& gradients,
                         void* workspace, bool deterministic, Stream stream) {
  auto* const memory = static_cast<std::byte*>(workspace);
  const BackwardCall call{shape, operands, y, lse, dy, gradients, stream};
  if (sm90::is_short(shape)) return sm90::backward_short(call);
  auto* const stats = reinterpret_cast<float2*>(memory);
  if (is_separate(shape, deterministic)) {
    sm90::backward_queries(call, stats);
    sm90::backward_keys(call, stats);
  } else {
    auto* const dq = reinterpret_cast<float*>(memory + align(rows(shape) * sizeof(float2)));
    sm90::backward_summed(call, stats, dq);
  }
}

std::size_t flash_sm90_scaled_workspace(const FlashShape& shape) {
  return align(rows(shape) * sizeof(float2));
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
