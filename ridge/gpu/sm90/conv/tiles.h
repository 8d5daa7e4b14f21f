#pragma once

// How the results of convolutions are cut into tiles on sm90, of 16 bits and of 8: what can be said
// without a card.

#include <cstdint>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/kernels/conv/conv_sm90.h"
#include "ridge/gpu/kernels/conv/int8_conv.h"

namespace ridge::gpu::sm90 {

// Whether the copy engine can take the windows, if it can take the pixels: they are in no groups
// and begin and end not far from the image.
bool windows_fit(const ConvGeometry& geometry, const ImageShape& y, const ImageShape& weight);

// A convolution as a product of [rows, depth steps] and [depth steps, columns], of as many channels
// at a time as `depth` says.
struct Extents {
  std::int64_t rows, columns, steps;

  explicit Extents(const ConvProblem& problem);
  explicit Extents(const Int8Problem& problem);

  std::int64_t tiles(std::int64_t tile_rows, std::int64_t tile_columns) const {
    return (rows + tile_rows - 1) / tile_rows * ((columns + tile_columns - 1) / tile_columns);
  }

 private:
  Extents(const ImageShape& x, const ImageShape& y, const ImageShape& weight, std::int64_t depth);
};

// The fewest columns that leave little of a tile empty.
int narrow_columns(std::int64_t channels);

// Bytes of the inner dimension at a time. Where pixels are half as long, deep tiles would be half
// zeros.
int depth_of(const Int8Problem& problem);

// Whether small tiles are worth trying: there are not more than `most` thread blocks for each
// multiprocessor, and each sums something.
bool small_tiles_fit(const Extents& extents, int columns, int split, std::int64_t most,
                     const Card& card);

// What is good without trying: large tiles, if there are enough of them to go round, in pairs where
// little is multiplied for many results; else narrow ones; and where their sums are long, parts of
// sums.
ConvTiles expected_tiles(const ConvProblem& problem, const Card& card);
Int8Tiles expected_tiles(const Int8Problem& problem, const Card& card);

}  // namespace ridge::gpu::sm90
