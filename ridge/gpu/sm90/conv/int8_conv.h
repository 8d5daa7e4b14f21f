#pragma once

#include "ridge/gpu/kernels/conv/int8_conv.h"

namespace ridge::gpu::sm90 {

// Implements int8_conv_sm90() of kernels/conv/int8_conv.h. Enqueues; DeviceError.
void int8_conv(const Int8Problem& problem, const Int8Tiles& tiles, const Int8Pointers& operands,
               int multiprocessors, Stream stream);

}  // namespace ridge::gpu::sm90
