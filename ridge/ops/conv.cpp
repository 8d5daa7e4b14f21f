#include "ridge/ops/conv.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/op.h"
#include "ridge/ops/reduce.h"

namespace ridge {
namespace {

// A weight is read as an image: its O kernels are the n of it, R and S its h and w.
using WeightShape = ImageShape;

void check_geometry(std::string_view op, const ConvGeometry& g) {
  for (int d = 0; d < 2; ++d) {
    if (g.stride[d] < 1 || g.dilation[d] < 1)
      throw ShapeError("{}: strides and dilations are at least 1, not {} and {}", op, g.stride[d],
                       g.dilation[d]);
    if (g.padding[d] < 0) throw ShapeError("{}: padding of {}", op, g.padding[d]);
  }
  if (g.groups < 1) throw ShapeError("{}: {} groups", op, g.groups);
}

// The shape of the convolution of an image with a weight.
Shape convolved(std::string_view op, const ConvGeometry& g, const Shape& image_shape,
                const Shape& weight_shape) {
  check_geometry(op, g);
  const ImageShape image(image_shape, g.layout);
  const WeightShape weight(weight_shape, g.layout);
  if (image.c != weight.c * g.groups || weight.n % g.groups != 0)
    throw ShapeError("{}: a weight of {} in {} groups does not fit {} channels of {}", op,
                     weight_shape.to_string(), g.groups, image.c, image_shape.to_string());
  const Pair out = g.output({image.h, image.w}, {weight.h, weight.w});
  if (out[0] < 1 || out[1] < 1)
    throw ShapeError(
        "{}: an image of {} x {}, padded by {} x {}, is too small for a kernel of {} x {} with "
        "dilation {} x {}",
        op, image.h, image.w, g.padding[0], g.padding[1], weight.h, weight.w, g.dilation[0],
        g.dilation[1]);
  return ImageShape(image.n, weight.n, out[0], out[1]).in(g.layout);
}

// Elements of the result times elements of a kernel: what lies in the padding counts.
std::int64_t macs_of(const ConvGeometry& g, const Shape& result, const Shape& weight_shape) {
  const WeightShape weight(weight_shape, g.layout);
  return result.numel() * weight.c * weight.pixels();
}

Cost products_cost(std::int64_t macs, std::int64_t others, Types in, Types out) {
  Cost cost = streaming_cost(2 * macs + others, in, out);
  cost.macs = macs;
  return cost;
}

// The results [begin, end) along a dimension whose kernel element number `at` reads the image.
std::pair<std::int64_t, std::int64_t> within(const ConvGeometry& g, int d, std::int64_t at,
                                             std::int64_t image, std::int64_t results) {
  const std::int64_t first = at * g.dilation[d] - g.padding[d];  // what result 0 reads
  const std::int64_t begin = first < 0 ? (-first + g.stride[d] - 1) / g.stride[d] : 0;
  const std::int64_t end = first < image ? (image - 1 - first) / g.stride[d] + 1 : 0;
  return {begin, std::min(end, results)};
}

// f(x, w, y) with the offsets of an element of the image, of the weight and of the result, for
// every product that the convolution is made of.
template <class F>
void for_each_product(const ConvGeometry& g, const Shape& image_shape, const Shape& weight_shape,
                      const Shape& result_shape, const F& f) {
  const ImageShape image(image_shape, g.layout), result(result_shape, g.layout);
  const WeightShape weight(weight_shape, g.layout);
  const ImageStrides xs(image, g.layout), ws(weight, g.layout), ys(result, g.layout);
  const std::int64_t per_group = weight.n / g.groups;
  for (std::int64_t r = 0; r < weight.h; ++r)
    for (std::int64_t s = 0; s < weight.w; ++s) {
      const auto [top, bottom] = within(g, 0, r, image.h, result.h);
      const auto [left, right] = within(g, 1, s, image.w, result.w);
      if (top >= bottom || left >= right) continue;
      const std::int64_t row = top * g.stride[0] + r * g.dilation[0] - g.padding[0];
      const std::int64_t column = left * g.stride[1] + s * g.dilation[1] - g.padding[1];
      for (std::int64_t n = 0; n < image.n; ++n)
        for (std::int64_t o = 0; o < weight.n; ++o)
          for (std::int64_t c = 0; c < weight.c; ++c) {
            const std::int64_t w = ws.at(o, c, r, s);
            std::int64_t x_row = xs.at(n, o / per_group * weight.c + c, row, column);
            std::int64_t y_row = ys.at(n, o, top, left);
            for (std::int64_t i = top; i < bottom; ++i) {
              std::int64_t x = x_row, y = y_row;
              for (std::int64_t j = left; j < right; ++j) {
                f(x, w, y);
                x += xs.w * g.stride[1], y += ys.w;
              }
              x_row += xs.h * g.stride[0], y_row += ys.h;
            }
          }
    }
}

// What convolutions and their gradients are tried on.
struct Trial {
  ImageShape image;
  WeightShape weight;
  Pair stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;

  ConvGeometry geometry(ImageLayout layout) const {
    return {stride, padding, dilation, groups, layout};
  }
};

std::vector<Trial> trials() {
  return {
      {{1, 1, 1, 1}, {1, 1, 1, 1}},
      {{2, 3, 5, 7}, {4, 3, 3, 3}, {1, 1}, {1, 1}},
      {{2, 4, 7, 5}, {6, 2, 3, 2}, {2, 1}, {1, 0}, {1, 2}, 2},
      // One by one, with and without a stride, and wide enough for vectors.
      {{2, 16, 6, 7}, {24, 16, 1, 1}},
      {{2, 16, 7, 7}, {8, 16, 1, 1}, {2, 2}},
      {{3, 65, 1, 1}, {33, 65, 1, 1}},
      // A network's first, a block's, a dilated one, one across, and one of the image's size.
      {{1, 3, 19, 21}, {8, 3, 7, 7}, {2, 2}, {3, 3}},
      {{2, 32, 14, 14}, {32, 32, 3, 3}, {1, 1}, {1, 1}},
      {{1, 16, 15, 15}, {16, 16, 3, 3}, {1, 1}, {4, 4}, {4, 4}},
      {{1, 8, 9, 9}, {8, 8, 1, 7}, {1, 1}, {0, 3}},
      {{2, 6, 5, 5}, {10, 6, 5, 5}},
      // Few pixels of many channels.
      {{1, 24, 7, 7}, {200, 24, 1, 1}},
      {{2, 16, 4, 4}, {130, 16, 3, 3}, {1, 1}, {1, 1}},
      // Patches without overlap, and with a remainder that no kernel reaches.
      {{2, 3, 18, 17}, {16, 3, 4, 4}, {4, 4}},
      // Padding beyond the kernel's reach: some results see nothing of the image.
      {{1, 2, 3, 3}, {2, 2, 1, 1}, {1, 1}, {2, 2}},
      // Many groups; each channel for itself; and with two results for each.
      {{1, 32, 6, 6}, {64, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 8},
      {{2, 8, 9, 6}, {8, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 8},
      {{2, 40, 13, 11}, {40, 1, 5, 5}, {1, 1}, {2, 2}, {1, 1}, 40},
      {{1, 3, 6, 6}, {6, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 3},
      {{1, 24, 8, 8}, {24, 1, 3, 3}, {1, 1}, {2, 2}, {2, 2}, 24},
  };
}

}  // namespace

Pair ConvGeometry::output(Pair image, Pair kernel) const {
  Pair out{};
  for (int d = 0; d < 2; ++d) {
    const std::int64_t room = image[d] + 2 * padding[d] - (dilation[d] * (kernel[d] - 1) + 1);
    out[d] = room < 0 ? 0 : room / stride[d] + 1;
  }
  return out;
}

std::vector<TensorType> Conv2d::infer(Types in) const {
  const Operands at = operands();
  check_count(name, in, at.count);
  for (std::size_t i = 0; i < 2; ++i) check_rank(name, in, i, 4);
  check_dtype(name, in, 0);
  check_same_dtype(name, in, 0, 1);
  if (!takes(epilogue)) throw ShapeError("{} has no epilogue {}", name, name_of(epilogue));
  const TensorType y{in[0].dtype, convolved(name, *this, in[0].shape, in[1].shape)};
  if (bias) check_type(name, in, at.bias, {y.dtype, {in[1].shape[0]}});
  if (residual) check_type(name, in, at.residual, y);
  return {y};
}

Cost Conv2d::cost(Types in, Types out) const {
  const std::int64_t others = bias + residual + element_function(epilogue).flops;
  return products_cost(macs_of(*this, out[0].shape, in[1].shape), others * out[0].numel(), in, out);
}

std::vector<Value> Conv2d::grad(GradBuilder& b) const {
  if (!has_gradient()) throw UsageError("conv2d: only without an epilogue does it have a gradient");
  const Value x = b.input(0), weight = b.input(1), dy = b.grad();
  std::vector<Value> grads(b.input_count());
  if (b.needs(0)) grads[0] = b.graph().apply1(Conv2dInputGrad{{*this}, x.shape()}, {dy, weight});
  if (b.needs(1)) grads[1] = b.graph().apply1(Conv2dWeightGrad{{*this}, weight.shape()}, {dy, x});
  const Operands at = operands();
  if (bias && b.needs(at.bias)) {
    const std::int64_t channels = weight.shape()[0];
    const Shape along = layout == ImageLayout::nchw ? Shape{channels, 1, 1} : Shape{channels};
    grads[at.bias] = reshape(sum_to(dy, along), {channels});
  }
  if (residual) grads[at.residual] = dy;
  return grads;
}

// PyTorch's images have channels first, wherever they lie.
std::string_view Conv2d::aten_name(Types) const {
  const bool plain = !residual && epilogue == Epilogue::none && layout == ImageLayout::nchw;
  return plain ? "aten::conv2d" : "";
}

void Conv2d::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &weight = call.inputs[1], &y = call.outputs[0];
  const ImageShape result(y.shape, layout);
  const ImageStrides strides(result, layout);
  const Operands at = operands();
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
    y[i] = residual ? call.inputs[at.residual][i] : 0.0;
    if (bias) y[i] += call.inputs[at.bias][i / strides.c % result.c];
  }
  for_each_product(
      *this, x.shape, weight.shape, y.shape,
      [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) { y[yi] += x[xi] * weight[wi]; });
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) y[i] = element_function(epilogue).value(y[i]);
}

std::vector<Sample<Conv2d>> Conv2d::samples() {
  std::vector<Sample<Conv2d>> samples;
  auto add = [&](const Trial& trial, ImageLayout layout, bool bias, bool residual,
                 Epilogue epilogue) {
    const Conv2d op{trial.geometry(layout), bias, residual, epilogue};
    std::vector<TensorType> types{{DType::f32, trial.image.in(layout)},
                                  {DType::f32, trial.weight.in(layout)}};
    const TensorType y{DType::f32, convolved(name, op, types[0].shape, types[1].shape)};
    if (bias) types.push_back({DType::f32, {trial.weight.n}});
    if (residual) types.push_back(y);
    Sample<Conv2d> sample{op, {}};
    for (const TensorType& type : types) sample.inputs.push_back({type});
    samples.push_back(std::move(sample));
  };
  const std::vector<Trial> all = trials();
  for (const ImageLayout layout : image_layouts) {
    for (std::size_t t = 0; t < all.size(); ++t)
      add(all[t], layout, t % 2 == 1, false, Epilogue::none);
    // Ordinary ones, one of few pixels, and one of each channel for itself.
    for (const std::size_t t : {std::size_t{1}, std::size_t{3}, std::size_t{12}, all.size() - 4}) {
      add(all[t], layout, false, true, Epilogue::none);
      for (const Epilogue epilogue :
           {Epilogue::relu, Epilogue::relu6, Epilogue::silu, Epilogue::hard_swish})
        add(all[t], layout, true, epilogue == Epilogue::relu, epilogue);
    }
  }
  return samples;
}

std::vector<TensorType> Conv2dInputGrad::infer(Types in) const {
  check_count(name, in, 2);
  for (std::size_t i = 0; i < 2; ++i) check_rank(name, in, i, 4);
  check_dtype(name, in, 0);
  check_same_dtype(name, in, 0, 1);
  if (image.rank() != 4) throw ShapeError("{}: {} is no image", name, image.to_string());
  check_type(name, in, 0, {in[0].dtype, convolved(name, *this, image, in[1].shape)});
  return {{in[0].dtype, image}};
}

Cost Conv2dInputGrad::cost(Types in, Types out) const {
  return products_cost(macs_of(*this, in[0].shape, in[1].shape), 0, in, out);
}

void Conv2dInputGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &weight = call.inputs[1], &dx = call.outputs[0];
  for (std::int64_t i = 0; i < dx.shape.numel(); ++i) dx[i] = 0;
  for_each_product(
      *this, dx.shape, weight.shape, dy.shape,
      [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) { dx[xi] += dy[yi] * weight[wi]; });
}

std::vector<Sample<Conv2dInputGrad>> Conv2dInputGrad::samples() {
  std::vector<Sample<Conv2dInputGrad>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& trial : trials()) {
      const Shape image = trial.image.in(layout), weight = trial.weight.in(layout);
      const ConvGeometry geometry = trial.geometry(layout);
      const Shape dy = convolved(name, geometry, image, weight);
      samples.push_back({{geometry, image}, {{{DType::f32, dy}}, {{DType::f32, weight}}}});
    }
  return samples;
}

std::vector<TensorType> Conv2dWeightGrad::infer(Types in) const {
  check_count(name, in, 2);
  for (std::size_t i = 0; i < 2; ++i) check_rank(name, in, i, 4);
  check_dtype(name, in, 0);
  check_same_dtype(name, in, 0, 1);
  if (weight.rank() != 4) throw ShapeError("{}: {} is no weight", name, weight.to_string());
  check_type(name, in, 0, {in[0].dtype, convolved(name, *this, in[1].shape, weight)});
  return {{in[0].dtype, weight}};
}

Cost Conv2dWeightGrad::cost(Types in, Types out) const {
  return products_cost(macs_of(*this, in[0].shape, weight), 0, in, out);
}

void Conv2dWeightGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &x = call.inputs[1], &dweight = call.outputs[0];
  for (std::int64_t i = 0; i < dweight.shape.numel(); ++i) dweight[i] = 0;
  for_each_product(
      *this, x.shape, dweight.shape, dy.shape,
      [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) { dweight[wi] += dy[yi] * x[xi]; });
}

std::vector<Sample<Conv2dWeightGrad>> Conv2dWeightGrad::samples() {
  std::vector<Sample<Conv2dWeightGrad>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& trial : trials()) {
      const Shape image = trial.image.in(layout), weight = trial.weight.in(layout);
      const ConvGeometry geometry = trial.geometry(layout);
      const Shape dy = convolved(name, geometry, image, weight);
      samples.push_back({{geometry, weight}, {{{DType::f32, dy}}, {{DType::f32, image}}}});
    }
  return samples;
}

Value conv2d(Value x, Value weight, Value bias, const ConvGeometry& geometry) {
  if (!bias) return x.graph->apply1(Conv2d{geometry}, {x, weight});
  return x.graph->apply1(Conv2d{geometry, true}, {x, weight, bias});
}

static_assert(Operator<Conv2d> && Differentiable<Conv2d>);
static_assert(Operator<Conv2dInputGrad>);
static_assert(Operator<Conv2dWeightGrad>);

}  // namespace ridge
