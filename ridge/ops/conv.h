#pragma once

#include "ridge/ops/epilogue.h"
#include "ridge/ops/image.h"
#include "ridge/ops/operator.h"

namespace ridge {

// What a convolution and its gradients have in common.
struct ConvGeometry {
  Pair stride{1, 1};
  Pair padding{0, 0};  // zeros on either side
  Pair dilation{1, 1};
  std::int64_t groups = 1;
  ImageLayout layout = ImageLayout::nchw;

  // How many places a kernel of so many rows and columns has on an image of these; below 1 if none.
  Pair output(Pair image, Pair kernel) const;
  bool operator==(const ConvGeometry&) const = default;
};

// y[n, o, i, j] = epilogue(bias[o] + residual[n, o, i, j] +
//     sum_crs x[n, g C/G + c, i stride - padding + r dilation, ..] * weight[o, c, r, s])
// with g the group of o, G groups, and x 0 beyond its edges. Takes x, an image of C channels, and
// weight[O, C / G, R, S], or [O, R, S, C / G] if the layout is nhwc; then, if `bias`, bias[O] in
// the type of x, and, if `residual`, a tensor of the result's type. Accumulates in f32. Only
// without epilogue does it have a gradient.
struct Conv2d : ConvGeometry {
  static constexpr std::string_view name = "conv2d";
  static constexpr WorkKind work = WorkKind::convolution;

  bool bias = false;
  bool residual = false;
  Epilogue epilogue = Epilogue::none;

  // No network has GELU behind a convolution.
  static constexpr bool takes(Epilogue e) { return e != Epilogue::gelu; }

  using Operands = LayerOperands;
  constexpr Operands operands() const { return {bias, residual}; }

  RIDGE_OPERATOR(Conv2d);
  std::vector<Value> grad(GradBuilder& builder) const;
  bool has_gradient() const { return epilogue == Epilogue::none; }
  std::string_view aten_name(Types in) const;
};

// Takes (dy, weight) and gives dx, of the image's shape `image`: the convolution transposed.
struct Conv2dInputGrad : ConvGeometry {
  static constexpr std::string_view name = "conv2d_input_grad";
  static constexpr WorkKind work = WorkKind::convolution;

  Shape image;

  RIDGE_OPERATOR(Conv2dInputGrad);
};

// Takes (dy, x) and gives dweight, of the weight's shape `weight`, of their type.
struct Conv2dWeightGrad : ConvGeometry {
  static constexpr std::string_view name = "conv2d_weight_grad";
  static constexpr WorkKind work = WorkKind::convolution;

  Shape weight;

  RIDGE_OPERATOR(Conv2dWeightGrad);
};

// Without bias if it is no value.
Value conv2d(Value x, Value weight, Value bias, const ConvGeometry& geometry);

}  // namespace ridge
