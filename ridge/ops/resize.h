#pragma once

#include "ridge/ops/axis.h"
#include "ridge/ops/image.h"
#include "ridge/ops/operator.h"

namespace ridge {

// An image of size[0] x size[1] by bilinear interpolation between the centers of pixels: row i of n
// over an extent of m lies at max((i + 1/2) m / n - 1/2, 0), and what would come after the last
// row is the last row.
struct Resize {
  static constexpr std::string_view name = "resize";

  Pair size{1, 1};
  ImageLayout layout = ImageLayout::nchw;

  RIDGE_OPERATOR(Resize);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::string_view aten_name(Types in) const;

  // Down and across.
  std::array<Axis, 2> axes(Types in, Types out) const;
};

// Takes (dy) and gives dx, of the image's shape `image`: the interpolation transposed.
struct ResizeGrad {
  static constexpr std::string_view name = "resize_grad";

  ImageLayout layout = ImageLayout::nchw;
  Shape image;

  RIDGE_OPERATOR(ResizeGrad);

  // Down and across.
  std::array<Axis, 2> axes(Types in, Types out) const;
};

Value resize(Value x, Pair size);

}  // namespace ridge
