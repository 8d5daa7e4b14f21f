#include "ridge/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

void check_windows(std::string_view op, const PoolWindows& w) {
  for (int d = 0; d < 2; ++d) {
    if (w.kernel[d] < 1 || w.stride[d] < 1)
      throw ShapeError("{}: kernels and strides are at least 1, not {} and {}", op, w.kernel[d],
                       w.stride[d]);
    if (w.padding[d] < 0 || w.padding[d] > w.kernel[d] / 2)
      throw ShapeError("{}: padding of {}, where a kernel of {} may have at most half of it", op,
                       w.padding[d], w.kernel[d]);
  }
}

Shape pooled(std::string_view op, const PoolWindows& windows, const Shape& shape) {
  check_windows(op, windows);
  const ImageShape image(shape, windows.layout);
  const Pair out = windows.output({image.h, image.w});
  if (out[0] < 1 || out[1] < 1)
    throw ShapeError(
        "{}: an image of {} x {}, padded by {} x {}, is too small for a window of {} x {}", op,
        image.h, image.w, windows.padding[0], windows.padding[1], windows.kernel[0],
        windows.kernel[1]);
  return ImageShape(image.n, image.c, out[0], out[1]).in(windows.layout);
}

void check_image(std::string_view op, Types in, std::size_t i, DTypes dtypes = f32_and_16_bit) {
  check_rank(op, in, i, 4);
  check_dtype(op, in, i, dtypes);
}

// Checks the attribute `image` of a pooling gradient: the shape of the gradient's result.
void check_image(std::string_view op, const Shape& image) {
  if (image.rank() != 4) throw ShapeError("{}: {} is no image", op, image.to_string());
}

std::array<Axis, 2> axes_of(const PoolWindows& w, bool count_padding, const Shape& image_shape) {
  const ImageShape image(image_shape, w.layout);
  const Pair in{image.h, image.w}, out = w.output(in);
  std::array<Axis, 2> axes;
  for (std::size_t d = 0; d < 2; ++d)
    axes[d] = {.kind = Axis::Kind::windows,
               .count_padding = count_padding,
               .in = in[d],
               .out = out[d],
               .kernel = w.kernel[d],
               .stride = w.stride[d],
               .padding = w.padding[d]};
  return axes;
}

std::array<Axis, 2> adaptive_axes(const ImageShape& image, const ImageShape& result) {
  return {Axis{.kind = Axis::Kind::adaptive, .in = image.h, .out = result.h},
          Axis{.kind = Axis::Kind::adaptive, .in = image.w, .out = result.w}};
}

// Elements of all windows.
std::int64_t terms_of(const std::array<Axis, 2>& axes, const Shape& shape, ImageLayout layout) {
  const ImageShape image(shape, layout);
  return image.n * image.c * axes[0].terms() * axes[1].terms();
}

// f(n, c, i, j, rows and columns [begin, end) of the window) for each result.
template <class F>
void for_each_window(const PoolWindows& w, const ImageShape& image, const ImageShape& result,
                     const F& f) {
  for (std::int64_t n = 0; n < result.n; ++n)
    for (std::int64_t c = 0; c < result.c; ++c)
      for (std::int64_t i = 0; i < result.h; ++i)
        for (std::int64_t j = 0; j < result.w; ++j) {
          const std::int64_t row = i * w.stride[0] - w.padding[0];
          const std::int64_t column = j * w.stride[1] - w.padding[1];
          f(n, c, i, j, Pair{std::max<std::int64_t>(row, 0), std::min(row + w.kernel[0], image.h)},
            Pair{std::max<std::int64_t>(column, 0), std::min(column + w.kernel[1], image.w)});
        }
}

// Where the largest element of a window lies.
std::int64_t largest_of(const ReferenceTensor& x, const ImageStrides& at, std::int64_t n,
                        std::int64_t c, Pair rows, Pair columns) {
  std::int64_t largest = at.at(n, c, rows[0], columns[0]);
  for (std::int64_t row = rows[0]; row < rows[1]; ++row)
    for (std::int64_t column = columns[0]; column < columns[1]; ++column) {
      const std::int64_t i = at.at(n, c, row, column);
      if (x[i] > x[largest] || (std::isnan(x[i]) && !std::isnan(x[largest]))) largest = i;
    }
  return largest;
}

// What a mean over the window [begin, end) of one dimension, clipped to the image, divides by.
double count_of(const PoolWindows& w, std::size_t d, std::int64_t i, std::int64_t extent,
                Pair window, bool count_padding) {
  if (!count_padding) return static_cast<double>(window[1] - window[0]);
  const std::int64_t begin = i * w.stride[d] - w.padding[d];
  return static_cast<double>(std::min(begin + w.kernel[d], extent + w.padding[d]) - begin);
}

// f(element of the image, element of the result, its share in the mean).
template <class F>
void for_each_share(const PoolWindows& w, bool count_padding, const Shape& image_shape,
                    const Shape& result_shape, const F& f) {
  const ImageShape image(image_shape, w.layout), result(result_shape, w.layout);
  const ImageStrides xs(image, w.layout), ys(result, w.layout);
  for_each_window(w, image, result, [&](auto n, auto c, auto i, auto j, Pair rows, Pair columns) {
    const double count = count_of(w, 0, i, image.h, rows, count_padding) *
                         count_of(w, 1, j, image.w, columns, count_padding);
    for (std::int64_t row = rows[0]; row < rows[1]; ++row)
      for (std::int64_t column = columns[0]; column < columns[1]; ++column)
        f(xs.at(n, c, row, column), ys.at(n, c, i, j), 1.0 / count);
  });
}

template <class F>
void for_each_adaptive_share(ImageLayout layout, const Shape& image_shape,
                             const Shape& result_shape, const F& f) {
  const ImageShape image(image_shape, layout), result(result_shape, layout);
  const ImageStrides xs(image, layout), ys(result, layout);
  auto window = [](std::int64_t i, std::int64_t m, std::int64_t n) {
    return Pair{i * m / n, ((i + 1) * m + n - 1) / n};
  };
  for (std::int64_t n = 0; n < result.n; ++n)
    for (std::int64_t c = 0; c < result.c; ++c)
      for (std::int64_t i = 0; i < result.h; ++i)
        for (std::int64_t j = 0; j < result.w; ++j) {
          const Pair rows = window(i, image.h, result.h), columns = window(j, image.w, result.w);
          const auto count = static_cast<double>((rows[1] - rows[0]) * (columns[1] - columns[0]));
          for (std::int64_t row = rows[0]; row < rows[1]; ++row)
            for (std::int64_t column = columns[0]; column < columns[1]; ++column)
              f(xs.at(n, c, row, column), ys.at(n, c, i, j), 1.0 / count);
        }
}

void clear(const ReferenceTensor& y) {
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) y[i] = 0;
}

// What pooling operators are tried on.
struct Trial {
  ImageShape image;
  Pair kernel, stride{1, 1}, padding{0, 0};
  bool ceil = false;

  PoolWindows windows(ImageLayout layout) const { return {kernel, stride, padding, ceil, layout}; }
};

std::vector<Trial> trials() {
  return {
      {{1, 1, 1, 1}, {1, 1}},
      {{2, 3, 7, 9}, {3, 3}, {2, 2}, {1, 1}},
      {{2, 8, 14, 12}, {2, 2}, {2, 2}},
      // Other extents down than across, and windows that leave gaps.
      {{1, 5, 11, 8}, {2, 3}, {3, 2}, {1, 0}},
      // A last window that ends beyond the image; one that would begin beyond it, and so is none.
      {{2, 33, 6, 7}, {3, 3}, {2, 2}, {0, 0}, true},
      {{1, 4, 5, 5}, {2, 2}, {2, 2}, {1, 1}, true},
      {{1, 3, 3, 3}, {1, 1}, {3, 3}, {0, 0}, true},
      // Windows of the image's size; large overlaps, and enough for several tasks.
      {{3, 16, 7, 7}, {7, 7}, {7, 7}},
      {{1, 6, 9, 10}, {5, 5}, {1, 1}, {2, 2}},
      {{1, 64, 16, 18}, {3, 3}, {2, 2}, {1, 1}},
  };
}

struct AdaptiveTrial {
  ImageShape image;
  Pair size;
};

std::vector<AdaptiveTrial> adaptive_trials() {
  return {{{1, 1, 1, 1}, {1, 1}}, {{2, 3, 7, 7}, {1, 1}},    {{2, 33, 7, 5}, {1, 1}},
          {{1, 4, 8, 8}, {4, 2}}, {{2, 5, 10, 7}, {3, 4}},   {{1, 8, 3, 2}, {7, 7}},
          {{1, 9, 6, 6}, {6, 6}}, {{4, 64, 14, 14}, {7, 7}}, {{2, 16, 40, 41}, {1, 1}}};
}

}  // namespace

Pair PoolWindows::output(Pair image) const {
  Pair out{};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t room = image[d] + 2 * padding[d] - kernel[d];
    if (room < 0) continue;
    out[d] = (room + (ceil ? stride[d] - 1 : 0)) / stride[d] + 1;
    if (ceil && (out[d] - 1) * stride[d] >= image[d] + padding[d]) --out[d];
  }
  return out;
}

std::vector<TensorType> MaxPool2d::infer(Types in) const {
  check_count(name, in, 1);
  check_image(name, in, 0, dtypes);
  return {{in[0].dtype, pooled(name, *this, in[0].shape)}};
}

Cost MaxPool2d::cost(Types in, Types out) const {
  return streaming_cost(0, in, out);  // comparisons are not counted
}

std::vector<Value> MaxPool2d::grad(GradBuilder& b) const {
  return {b.graph().apply1(MaxPool2dGrad{{*this}}, {b.grad(), b.input(0)})};
}

std::string_view MaxPool2d::aten_name(Types) const {
  return layout == ImageLayout::nchw ? "aten::max_pool2d" : "";
}

void MaxPool2d::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  const ImageShape image(x.shape, layout), result(y.shape, layout);
  const ImageStrides xs(image, layout), ys(result, layout);
  for_each_window(*this, image, result,
                  [&](auto n, auto c, auto i, auto j, Pair rows, Pair columns) {
                    y[ys.at(n, c, i, j)] = x[largest_of(x, xs, n, c, rows, columns)];
                  });
}

std::vector<Sample<MaxPool2d>> MaxPool2d::samples() {
  std::vector<Sample<MaxPool2d>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& t : trials())
      samples.push_back({{t.windows(layout)}, {{{DType::f32, t.image.in(layout)}}}});
  return samples;
}

std::vector<TensorType> MaxPool2dGrad::infer(Types in) const {
  check_count(name, in, 2);
  check_image(name, in, 1);
  check_type(name, in, 0, {in[1].dtype, pooled(name, *this, in[1].shape)});
  return {in[1]};
}

Cost MaxPool2dGrad::cost(Types in, Types out) const {
  return streaming_cost(in[0].numel(), in, out);  // every dy is added to an element
}

void MaxPool2dGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &x = call.inputs[1], &dx = call.outputs[0];
  const ImageShape image(x.shape, layout), result(dy.shape, layout);
  const ImageStrides xs(image, layout), ys(result, layout);
  clear(dx);
  for_each_window(*this, image, result,
                  [&](auto n, auto c, auto i, auto j, Pair rows, Pair columns) {
                    dx[largest_of(x, xs, n, c, rows, columns)] += dy[ys.at(n, c, i, j)];
                  });
}

std::vector<Sample<MaxPool2dGrad>> MaxPool2dGrad::samples() {
  std::vector<Sample<MaxPool2dGrad>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& t : trials()) {
      const PoolWindows windows = t.windows(layout);
      const Shape x = t.image.in(layout);
      samples.push_back({{windows}, {{{DType::f32, pooled(name, windows, x)}}, {{DType::f32, x}}}});
    }
  // Few values in bf16, so that windows hold several of the largest.
  samples.push_back({{{{3, 3}, {2, 2}, {1, 1}, false, ImageLayout::nhwc}},
                     {{{DType::f32, {1, 4, 4, 8}}}, {{DType::f32, {1, 8, 8, 8}}, 1.0, 1.03}}});
  return samples;
}

std::vector<TensorType> AvgPool2d::infer(Types in) const {
  check_count(name, in, 1);
  check_image(name, in, 0);
  return {{in[0].dtype, pooled(name, *this, in[0].shape)}};
}

Cost AvgPool2d::cost(Types in, Types out) const {
  // A window of n elements takes n - 1 adds and a division.
  return streaming_cost(terms_of(axes(in, out), in[0].shape, layout), in, out);
}

std::array<Axis, 2> AvgPool2d::axes(Types in, Types) const {
  return axes_of(*this, count_padding, in[0].shape);
}

std::vector<Value> AvgPool2d::grad(GradBuilder& b) const {
  return {b.graph().apply1(AvgPool2dGrad{{*this}, count_padding, b.input(0).shape()}, {b.grad()})};
}

std::string_view AvgPool2d::aten_name(Types) const {
  return layout == ImageLayout::nchw ? "aten::avg_pool2d" : "";
}

void AvgPool2d::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  clear(y);
  for_each_share(*this, count_padding, x.shape, y.shape,
                 [&](auto i, auto o, double share) { y[o] += share * x[i]; });
}

std::vector<Sample<AvgPool2d>> AvgPool2d::samples() {
  std::vector<Sample<AvgPool2d>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& t : trials())
      for (const bool count : {true, false})
        samples.push_back({{t.windows(layout), count}, {{{DType::f32, t.image.in(layout)}}}});
  return samples;
}

std::vector<TensorType> AvgPool2dGrad::infer(Types in) const {
  check_count(name, in, 1);
  check_image(name, in, 0);
  check_image(name, image);
  check_type(name, in, 0, {in[0].dtype, pooled(name, *this, image)});
  return {{in[0].dtype, image}};
}

Cost AvgPool2dGrad::cost(Types in, Types out) const {
  // Each dy is divided, and added to the elements of its window.
  return streaming_cost(in[0].numel() + terms_of(axes(in, out), image, layout), in, out);
}

std::array<Axis, 2> AvgPool2dGrad::axes(Types, Types) const {
  return axes_of(*this, count_padding, image);
}

void AvgPool2dGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &dx = call.outputs[0];
  clear(dx);
  for_each_share(*this, count_padding, dx.shape, dy.shape,
                 [&](auto i, auto o, double share) { dx[i] += share * dy[o]; });
}

std::vector<Sample<AvgPool2dGrad>> AvgPool2dGrad::samples() {
  std::vector<Sample<AvgPool2dGrad>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& t : trials())
      for (const bool count : {true, false}) {
        const PoolWindows windows = t.windows(layout);
        const Shape image = t.image.in(layout);
        samples.push_back(
            {{windows, count, image}, {{{DType::f32, pooled(name, windows, image)}}}});
      }
  return samples;
}

std::vector<TensorType> AdaptiveAvgPool2d::infer(Types in) const {
  check_count(name, in, 1);
  check_image(name, in, 0);
  if (size[0] < 1 || size[1] < 1) throw ShapeError("{}: a size of {} x {}", name, size[0], size[1]);
  const ImageShape image(in[0].shape, layout);
  return {{in[0].dtype, ImageShape(image.n, image.c, size[0], size[1]).in(layout)}};
}

Cost AdaptiveAvgPool2d::cost(Types in, Types out) const {
  return streaming_cost(terms_of(axes(in, out), in[0].shape, layout), in, out);
}

std::array<Axis, 2> AdaptiveAvgPool2d::axes(Types in, Types out) const {
  return adaptive_axes({in[0].shape, layout}, {out[0].shape, layout});
}

std::vector<Value> AdaptiveAvgPool2d::grad(GradBuilder& b) const {
  return {b.graph().apply1(AdaptiveAvgPool2dGrad{layout, b.input(0).shape()}, {b.grad()})};
}

std::string_view AdaptiveAvgPool2d::aten_name(Types) const {
  return layout == ImageLayout::nchw ? "aten::adaptive_avg_pool2d" : "";
}

void AdaptiveAvgPool2d::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  clear(y);
  for_each_adaptive_share(layout, x.shape, y.shape,
                          [&](auto i, auto o, double share) { y[o] += share * x[i]; });
}

std::vector<Sample<AdaptiveAvgPool2d>> AdaptiveAvgPool2d::samples() {
  std::vector<Sample<AdaptiveAvgPool2d>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const AdaptiveTrial& t : adaptive_trials())
      samples.push_back({{t.size, layout}, {{{DType::f32, t.image.in(layout)}}}});
  return samples;
}

std::vector<TensorType> AdaptiveAvgPool2dGrad::infer(Types in) const {
  check_count(name, in, 1);
  check_image(name, in, 0);
  check_image(name, image);
  const ImageShape dx(image, layout), dy(in[0].shape, layout);
  if (dx.n != dy.n || dx.c != dy.c)
    throw ShapeError("{}: {} is no pooled {}", name, list_of(in), image.to_string());
  return {{in[0].dtype, image}};
}

Cost AdaptiveAvgPool2dGrad::cost(Types in, Types out) const {
  return streaming_cost(in[0].numel() + terms_of(axes(in, out), image, layout), in, out);
}

std::array<Axis, 2> AdaptiveAvgPool2dGrad::axes(Types in, Types out) const {
  return adaptive_axes({out[0].shape, layout}, {in[0].shape, layout});
}

std::optional<PointwiseStep> AdaptiveAvgPool2dGrad::as_step(Types in) const {
  const ImageShape dy(in[0].shape, layout);
  if (dy.pixels() != 1) return std::nullopt;
  const auto pixels = static_cast<float>(image.numel() / in[0].numel());
  return {{.code = StepCode::scale, .factor = 1.0f / pixels}};
}

void AdaptiveAvgPool2dGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &dx = call.outputs[0];
  clear(dx);
  for_each_adaptive_share(layout, dx.shape, dy.shape,
                          [&](auto i, auto o, double share) { dx[i] += share * dy[o]; });
}

std::vector<Sample<AdaptiveAvgPool2dGrad>> AdaptiveAvgPool2dGrad::samples() {
  std::vector<Sample<AdaptiveAvgPool2dGrad>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const AdaptiveTrial& t : adaptive_trials()) {
      const Shape dy = ImageShape(t.image.n, t.image.c, t.size[0], t.size[1]).in(layout);
      samples.push_back({{layout, t.image.in(layout)}, {{{DType::f32, dy}}}});
    }
  return samples;
}

Value max_pool2d(Value x, const PoolWindows& windows) {
  return x.graph->apply1(MaxPool2d{windows}, {x});
}

Value avg_pool2d(Value x, const PoolWindows& windows, bool count_padding) {
  return x.graph->apply1(AvgPool2d{windows, count_padding}, {x});
}

Value adaptive_avg_pool2d(Value x, Pair size) {
  return x.graph->apply1(AdaptiveAvgPool2d{.size = size}, {x});
}

static_assert(Operator<MaxPool2d> && Differentiable<MaxPool2d>);
static_assert(Operator<MaxPool2dGrad>);
static_assert(Operator<AvgPool2d> && Differentiable<AvgPool2d>);
static_assert(Operator<AvgPool2dGrad>);
static_assert(Operator<AdaptiveAvgPool2d> && Differentiable<AdaptiveAvgPool2d>);
static_assert(Operator<AdaptiveAvgPool2dGrad>);

}  // namespace ridge
