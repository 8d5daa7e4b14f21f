#pragma once

#include "ridge/gpu/kernels/conv/int8_conv.h"

namespace ridge::gpu::sm90 {

// What gpu/int8_conv.h declares as int8_conv_sm90. Enqueues; DeviceError.
void int8_conv(const Int8Problem& problem, const Int8Tiles& tiles, const Int8Pointers& operands,
               int multiprocessors, Stream stream);

}  // namespace ridge::gpu::sm90
