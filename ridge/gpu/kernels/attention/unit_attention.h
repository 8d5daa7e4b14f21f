#pragma once

// Flash attention on matrix units (device/matrix_unit.h), for cards that no kernel of their own is
// written for: operands of 16 bits, sums and softmax in f32, and always the same bits.

#include <memory>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

// Heads of up to 128 columns, a multiple of 8. Operands may be aligned to their elements only.
bool unit_attention_supports(DType dtype, const FlashShape& shape);

// Of shapes that are supported.
std::unique_ptr<FusedAttention> unit_attention(const Card& card, DType dtype,
                                               const FlashShape& shape);
std::unique_ptr<FusedAttentionGrad> unit_attention_grad(const Card& card, DType dtype,
                                                        const FlashShape& shape);

}  // namespace ridge::gpu
