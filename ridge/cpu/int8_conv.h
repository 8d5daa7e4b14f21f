#pragma once

// Convolutions of 8-bit integers: what becomes of their sums, and sums where the library's are
// wrong.

#include <cstdint>

#include "ridge/cpu/onednn_conv.h"

namespace ridge {

struct ConvPart;

// The part of y from its sums, which lie by themselves; bias and residual are all of them.
void finish_int8(const ConvShape& shape, const ConvPart& part, const std::int32_t* sums,
                 const ConvOperands& operands);

// Whether the library sums products of 8-bit integers exactly here. Without VNNI's instructions it
// adds pairs of products in 16 bits, which overflow, and halves weights to make that rarer (oneDNN,
// "Nuances of int8 Computations").
bool onednn_sums_int8_exactly();

// By convolutions of f32, whose sums are exact as long as they stay below 2^24: some input channels
// at a time. DeviceError if kernels are so large that one channel's sums may not.
ConvPtr make_int8_conv_by_f32(const ConvShape& shape);

}  // namespace ridge
