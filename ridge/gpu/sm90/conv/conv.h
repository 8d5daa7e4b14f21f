#pragma once

#include "ridge/gpu/kernels/conv/conv_sm90.h"

namespace ridge::gpu::sm90 {

// What conv_sm90.h declares, of channels that are a multiple of 8. Enqueues; DeviceError.
void conv(const ConvProblem& problem, const ConvTiles& tiles, const ConvPointers& operands,
          int multiprocessors, Stream stream);

// The same of fewer channels, without a residual, where takes_few_channels() says so.
bool takes_few_channels(const ConvProblem& problem);
void conv_of_few_channels(const ConvProblem& problem, const ConvTiles& tiles,
                          const ConvPointers& operands, int multiprocessors, Stream stream);

// Convolutions 3 x 3 whose images pass into shared memory once, where takes_patches() says so; of
// so many tiles.
bool takes_patches(const ConvProblem& problem);
std::int64_t patches_of(const ConvProblem& problem);
void conv_of_patches(const ConvProblem& problem, const ConvPointers& operands, int multiprocessors,
                     Stream stream);

}  // namespace ridge::gpu::sm90
