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
std::string_view name_of(ImageLayout layout);  // "nchw"

// The extents of a batch of images, whatever its layout.
struct ImageShape {
  std::int64_t n = 1, c = 1, h = 1, w = 1;

  ImageShape() = default;
  ImageShape(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w)
      : n(n), c(c), h(h), w(w) {}
  // `shape` has four dimensions.
  ImageShape(const Shape& shape, ImageLayout layout);

  Shape in(ImageLayout layout) const;
  std::int64_t pixels() const { return h * w; }
  bool operator==(const ImageShape&) const = default;
};

// Of a dimension: down, across.
using Pair = std::array<std::int64_t, 2>;

}  // namespace ridge
