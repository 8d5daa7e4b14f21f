#pragma once

#include "ridge/cpu/onednn_conv.h"
#include "ridge/cpu/prepare.h"
#include "ridge/device/kernel.h"

namespace ridge {

// A convolution of any dtype and layout: where the library has none, or a much slower one, through
// copies of the operands.
ConvPtr make_conv(const ConvShape& shape);

// Which of a launch's operands are a convolution's.
using ConvOperandsOf = ConvOperands (*)(const Launch& call, const ConvShape& shape);

// A kernel of it, whose second input is the weights, if it reads such; they are packed once where
// nothing changes them between launches (device/packing.h), else each time. Where that is too slow
// `unpacked` runs instead, of whose workspace `prepare` knows.
KernelPtr conv_kernel(CpuPrepare& prepare, const ConvShape& shape, ConvOperandsOf operands_of,
                      KernelPtr unpacked = {});

}  // namespace ridge
