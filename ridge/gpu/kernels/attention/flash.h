#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/problems.h"

namespace ridge::gpu {

// The kernels of flash attention for sm90; device/problems.h says what they compute.

// The kernels of the forward pass. Those of one tile and of whole heads hold all keys of a head at
// once; the others run along the keys with a running softmax, and 64 queries a warpgroup. Of whole
// heads, whole_heads has a few queries beyond tiles of 64 taken by warps of their own, whole_tiles
// by a tile like the others.
enum class FlashForward : std::uint8_t {
  one_tile,
  whole_heads,
  whole_tiles,
  two_warpgroups,
  three_warpgroups
};

// The kernels of the backward pass. `separate` computes the scores twice, for dq and for dk and dv
// apart; `summed` once, and adds up dq over the keys in memory, in no fixed order. All others give
// the same bits in each run.
enum class FlashBackward : std::uint8_t { one_tile, separate, summed };

// The rows of a tile, and the most keys of a head that is held as a whole. And the most queries
// beyond tiles of 64 that warps of their own take, of so many keys at most, as 5 of ViT's 197.
inline constexpr int flash_tile_rows = 128;
inline constexpr int most_whole_keys = 256;
inline constexpr int most_rest_rows = 16, most_keys_beside_rest = 208;
constexpr bool has_rest(const FlashShape& shape) {
  return shape.seq <= most_keys_beside_rest && shape.seq % 64 != 0 &&
         shape.seq % 64 <= most_rest_rows;
}

std::string_view name_of(FlashForward kernel);  // "one tile"
std::string_view name_of(FlashBackward kernel);

// Whether a kernel takes the shape; with `deterministic`, only if reruns agree bit for bit, as they
// do in the forward pass.
bool flash_sm90_supports(FlashForward kernel, const FlashShape& shape, bool deterministic);
bool flash_sm90_supports(FlashBackward kernel, const FlashShape& shape, bool deterministic);

// Whether all kernels take this: a head_dim they are built for, pointers at multiples of 16 bytes,
// strides of multiples of 8 elements.
bool flash_sm90_supports(const FlashShape& shape, const FlashOperands& operands);
bool flash_sm90_supports(const FlashShape& shape, const FlashGradients& gradients);

// How fast a kernel is expected to be compared with the others that take the shape: from 0 up, the
// higher, the faster.
int flash_sm90_expectation(FlashForward kernel, const FlashShape& shape, const Crossovers& at);
int flash_sm90_expectation(FlashBackward kernel, const FlashShape& shape, const Crossovers& at);

// Whether a kernel rotates q and k itself, because that costs less than a pass before it: where
// sequences are so short that no row is rotated often.
constexpr bool rotates(FlashForward kernel) { return kernel == FlashForward::one_tile; }
constexpr bool rotates(FlashBackward kernel) { return kernel == FlashBackward::one_tile; }

// y: [batch, seq, n_heads * head_dim]. lse: float [batch, n_heads, seq], the natural logarithm
// of the sum over keys of exp(scale q.k). Enqueues; throws DeviceError.
void flash_sm90_forward(FlashForward kernel, const FlashShape& shape, const FlashOperands& operands,
                        void* y, float* lse, Stream stream);

// The backward pass, from dy and what the forward pass wrote (both laid out as y). Needs
// `workspace` of the size below, at a multiple of 256 bytes.
std::size_t flash_sm90_workspace(FlashBackward kernel, const FlashShape& shape);
void flash_sm90_backward(FlashBackward kernel, const FlashShape& shape,
                         const FlashOperands& operands, const void* y, const float* lse,
                         const void* dy, const FlashGradients& gradients, void* workspace,
                         Stream stream);

// The same of f32 tensors whose values are in f16 with a scale: elements of q, k and v stand for
// *scale times themselves, those of dy for *dy_scale times. y and the gradients are f32. Rotations
// come before. Probabilities and gradients of scores are rounded to f16 where tf32 would round them
// too: scaled so that none overflows and the largest of a tile keep all 11 bits. Forward by the
// kernel of two or of three warpgroups, backward by the separate one.
struct ScaledFlash {
  FlashShape shape;
  FlashOperands operands;
  const float* scale = nullptr;
};
void flash_sm90_scaled_forward(FlashForward kernel, const ScaledFlash& call, float* y, float* lse,
                               Stream stream);

// `delta`: float [batch, n_heads, seq], rowsum(dy y). Needs `workspace` as the separate kernel.
void flash_sm90_scaled_backward(const ScaledFlash& call, const float* lse, const float* delta,
                                const void* dy, const float* dy_scale,
                                const FlashGradients& gradients, void* workspace, Stream stream);

}  // namespace ridge::gpu
