#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "ridge/base/shape.h"

namespace ridge {

// How a batch of images lies in memory. Models are built with channels first, like the weights that
// others publish; a pass may rewrite a graph to channels last.
enum class ImageLayout : std::uint8_t {
  nchw,  // [N, C, H, W]
  nhwc,  // [N, H, W, C]
};
inline constexpr ImageLayout image_layouts[] = {ImageLayout::nchw, ImageLayout::nhwc};
std::string_view name_of(ImageLayout layout);  // "nchw"

// The extents of a batch of images, whatever its layout.
struct ImageShape {
  std::int64_t n = 1, c = 1, h = 1, w = 1;

  ImageShape() = default;
  ImageShape(std::int64_t images, std::int64_t channels, std::int64_t rows, std::int64_t columns)
      : n(images), c(channels), h(rows), w(columns) {}
  // `shape` has four dimensions.
  ImageShape(const Shape& shape, ImageLayout layout);

  Shape in(ImageLayout layout) const;
  std::int64_t pixels() const { return h * w; }
  bool operator==(const ImageShape&) const = default;
};

// How far apart neighbors of each dimension lie in memory, in elements.
struct ImageStrides {
  std::int64_t n = 0, c = 0, h = 0, w = 0;

  ImageStrides() = default;
  ImageStrides(const ImageShape& image, ImageLayout layout);

  constexpr std::int64_t at(std::int64_t image, std::int64_t channel, std::int64_t row,
                            std::int64_t column) const {
    return image * n + channel * c + row * h + column * w;
  }
};

// A number for each dimension of an image: down, across.
using Pair = std::array<std::int64_t, 2>;

}  // namespace ridge
