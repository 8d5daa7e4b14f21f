#include "ridge/ops/image.h"

namespace ridge {

std::string_view name_of(ImageLayout layout) {
  return layout == ImageLayout::nhwc ? "nhwc" : "nchw";
}

ImageShape::ImageShape(const Shape& shape, ImageLayout layout)
    : n(shape[0]),
      c(layout == ImageLayout::nchw ? shape[1] : shape[3]),
      h(layout == ImageLayout::nchw ? shape[2] : shape[1]),
      w(layout == ImageLayout::nchw ? shape[3] : shape[2]) {}

Shape ImageShape::in(ImageLayout layout) const {
  return layout == ImageLayout::nchw ? Shape{n, c, h, w} : Shape{n, h, w, c};
}

ImageStrides::ImageStrides(const ImageShape& image, ImageLayout layout)
    : n(image.c * image.h * image.w) {
  if (layout == ImageLayout::nchw) {
    c = image.h * image.w;
    h = image.w;
    w = 1;
  } else {
    c = 1;
    h = image.w * image.c;
    w = image.c;
  }
}

}  // namespace ridge
