#pragma once

// Convolutions by plain sums, without products of matrices: what is best where each channel is
// convolved for itself, and works for all shapes.

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/vendor/dnn.h"
#include "ridge/ops/conv.h"

namespace ridge::gpu {

KernelPtr direct_conv(const Conv2d& op, GpuPrepare& prepare);
KernelPtr direct_conv_input_grad(const Conv2dInputGrad& op, GpuPrepare& prepare);
KernelPtr direct_conv_weight_grad(const Conv2dWeightGrad& op, GpuPrepare& prepare);

// Enqueues what is still to be done to y, a convolution's plain result.
void finish_conv(const Context& gpu, const ConvProblem& problem, const ConvPointers& operands);

// Whether each channel is convolved for itself into one of the result, in an order and of a size
// that the kernels above have their own variants for.
bool is_depthwise(const ConvProblem& problem);

}  // namespace ridge::gpu
