#pragma once

#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu::sm90 {

// How images are cut into tiles.
struct DepthwiseTiles {
  int images = 0, rows = 0, places = 0;  // of a tile: rows of the result, places of a row
  int down = 0, across = 0;              // tiles of an image
  int image_rows = 0, image_width = 0;   // that a tile reads
};

// The tiles that are expected to be the best.
DepthwiseTiles depthwise_tiles(const ConvProblem& problem, int multiprocessors);

// What conv_sm90.h calls depthwise_sm90, with these tiles. Enqueues; DeviceError.
void depthwise_conv(const ConvProblem& problem, const DepthwiseTiles& tiles,
                    const ConvPointers& operands, int multiprocessors, Stream stream);

}  // namespace ridge::gpu::sm90
