#pragma once

#include "ridge/ops/axis.h"
#include "ridge/ops/image.h"
#include "ridge/ops/operator.h"

namespace ridge {

// The windows of a pooling operator over an image's rows and columns.
struct PoolWindows {
  Pair kernel{1, 1};
  Pair stride{1, 1};
  Pair padding{0, 0};  // at most half the kernel
  // Whether a last window may begin inside the image, or its padding before, and end beyond.
  bool ceil = false;
  ImageLayout layout = ImageLayout::nchw;

  // How many windows an image of these extents has; below 1 if none.
  Pair output(Pair image) const;
  bool operator==(const PoolWindows&) const = default;
};

// The largest element of each window; padding counts as -infinity.
struct MaxPool2d : PoolWindows {
  static constexpr std::string_view name = "max_pool2d";
  static constexpr DTypes dtypes = f32_16_bit_and_s8;

  RIDGE_OPERATOR(MaxPool2d);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::string_view aten_name(Types in) const;
};

// Takes (dy, x) and gives dx: each dy goes to the first largest element of its window, row by row.
struct MaxPool2dGrad : PoolWindows {
  static constexpr std::string_view name = "max_pool2d_grad";

  RIDGE_OPERATOR(MaxPool2dGrad);
};

// The mean of each window, in f32 inside. With `count_padding` zeros of the padding are part of the
// mean, but not what lies beyond it.
struct AvgPool2d : PoolWindows {
  static constexpr std::string_view name = "avg_pool2d";

  bool count_padding = true;

  RIDGE_OPERATOR(AvgPool2d);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::string_view aten_name(Types in) const;

  // Down and across.
  std::array<Axis, 2> axes(Types in, Types out) const;
};

// Takes (dy) and gives dx, of the image's shape `image`.
struct AvgPool2dGrad : PoolWindows {
  static constexpr std::string_view name = "avg_pool2d_grad";

  bool count_padding = true;
  Shape image;

  RIDGE_OPERATOR(AvgPool2dGrad);

  // Down and across.
  std::array<Axis, 2> axes(Types in, Types out) const;
};

// The mean of each of size[0] x size[1] windows that cover the image as evenly as they can: window
// i of n over an extent of m begins at floor(i m / n) and ends at ceil((i + 1) m / n).
struct AdaptiveAvgPool2d {
  static constexpr std::string_view name = "adaptive_avg_pool2d";

  Pair size{1, 1};
  ImageLayout layout = ImageLayout::nchw;

  RIDGE_OPERATOR(AdaptiveAvgPool2d);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::string_view aten_name(Types in) const;

  // Down and across.
  std::array<Axis, 2> axes(Types in, Types out) const;
};

// Takes (dy) and gives dx, of the image's shape `image`.
struct AdaptiveAvgPool2dGrad {
  static constexpr std::string_view name = "adaptive_avg_pool2d_grad";

  ImageLayout layout = ImageLayout::nchw;
  Shape image;

  RIDGE_OPERATOR(AdaptiveAvgPool2dGrad);
  // Of a mean over the whole image: the same share for every pixel.
  std::optional<PointwiseStep> as_step(Types in) const;

  // Down and across.
  std::array<Axis, 2> axes(Types in, Types out) const;
};

Value max_pool2d(Value x, const PoolWindows& windows);
Value avg_pool2d(Value x, const PoolWindows& windows, bool count_padding = true);
Value adaptive_avg_pool2d(Value x, Pair size);

}  // namespace ridge
