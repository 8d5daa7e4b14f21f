#include "ridge/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

std::array<Axis, 2> axes_of(const ImageShape& image, const ImageShape& result) {
  return {Axis{.kind = Axis::Kind::linear, .in = image.h, .out = result.h},
          Axis{.kind = Axis::Kind::linear, .in = image.w, .out = result.w}};
}

// The two rows (or columns) that one of the result lies between, and how far towards the second.
struct Between {
  std::int64_t first, second;
  double part;
};

Between between(std::int64_t i, std::int64_t m, std::int64_t n) {
  const double at = std::max(
      (static_cast<double>(i) + 0.5) * static_cast<double>(m) / static_cast<double>(n) - 0.5, 0.0);
  const auto first = static_cast<std::int64_t>(at);
  return {first, std::min(first + 1, m - 1), at - std::floor(at)};
}

// f(element of the image, element of the result, its weight).
template <class F>
void for_each_weight(ImageLayout layout, const Shape& image_shape, const Shape& result_shape,
                     const F& f) {
  const ImageShape image(image_shape, layout), result(result_shape, layout);
  const ImageStrides xs(image, layout), ys(result, layout);
  for (std::int64_t n = 0; n < result.n; ++n)
    for (std::int64_t c = 0; c < result.c; ++c)
      for (std::int64_t i = 0; i < result.h; ++i)
        for (std::int64_t j = 0; j < result.w; ++j) {
          const Between row = between(i, image.h, result.h), col = between(j, image.w, result.w);
          const std::int64_t o = ys.at(n, c, i, j);
          f(xs.at(n, c, row.first, col.first), o, (1 - row.part) * (1 - col.part));
          f(xs.at(n, c, row.first, col.second), o, (1 - row.part) * col.part);
          f(xs.at(n, c, row.second, col.first), o, row.part * (1 - col.part));
          f(xs.at(n, c, row.second, col.second), o, row.part * col.part);
        }
}

struct Trial {
  ImageShape image;
  Pair size;
};

std::vector<Trial> trials() {
  return {{{1, 1, 1, 1}, {1, 1}},    {{2, 3, 1, 1}, {4, 5}},    {{2, 3, 5, 7}, {5, 7}},
          {{1, 33, 4, 6}, {9, 13}},  {{2, 5, 9, 12}, {4, 3}},   {{1, 8, 7, 7}, {1, 1}},
          {{1, 21, 9, 9}, {65, 64}}, {{1, 4, 33, 20}, {11, 40}}};
}

}  // namespace

std::vector<TensorType> Resize::infer(Types in) const {
  check_count(name, in, 1);
  check_rank(name, in, 0, 4);
  check_dtype(name, in, 0);
  if (size[0] < 1 || size[1] < 1) throw ShapeError("resize to {} x {}", size[0], size[1]);
  const ImageShape image(in[0].shape, layout);
  return {{in[0].dtype, ImageShape(image.n, image.c, size[0], size[1]).in(layout)}};
}

Cost Resize::cost(Types in, Types out) const {
  // Per element: between two columns of each of two rows, and between these: 3 operations each.
  return streaming_cost(9 * out[0].numel(), in, out);
}

std::array<Axis, 2> Resize::axes(Types in, Types out) const {
  return axes_of({in[0].shape, layout}, {out[0].shape, layout});
}

std::vector<Value> Resize::grad(GradBuilder& b) const {
  return {b.graph().apply1(ResizeGrad{layout, b.input(0).shape()}, {b.grad()})};
}

std::string_view Resize::aten_name(Types) const {
  return layout == ImageLayout::nchw ? "aten::upsample_bilinear2d" : "";
}

void Resize::reference(ReferenceCall& call) const {
  const auto &x = call.inputs[0], &y = call.outputs[0];
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) y[i] = 0;
  for_each_weight(layout, x.shape, y.shape,
                  [&](auto i, auto o, double weight) { y[o] += weight * x[i]; });
}

std::vector<Sample<Resize>> Resize::samples() {
  std::vector<Sample<Resize>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& t : trials())
      samples.push_back({{t.size, layout}, {{{DType::f32, t.image.in(layout)}}}});
  return samples;
}

std::vector<TensorType> ResizeGrad::infer(Types in) const {
  check_count(name, in, 1);
  check_rank(name, in, 0, 4);
  check_dtype(name, in, 0);
  if (image.rank() != 4) throw ShapeError("{}: {} is no image", name, image.to_string());
  const ImageShape dx(image, layout), dy(in[0].shape, layout);
  if (dx.n != dy.n || dx.c != dy.c)
    throw ShapeError("{}: {} is no resized {}", name, list_of(in), image.to_string());
  return {{in[0].dtype, image}};
}

Cost ResizeGrad::cost(Types in, Types out) const {
  // Per dy: its product with two weights of rows, each with two of columns; four adds.
  return streaming_cost(10 * in[0].numel(), in, out);
}

std::array<Axis, 2> ResizeGrad::axes(Types in, Types out) const {
  return axes_of({out[0].shape, layout}, {in[0].shape, layout});
}

void ResizeGrad::reference(ReferenceCall& call) const {
  const auto &dy = call.inputs[0], &dx = call.outputs[0];
  for (std::int64_t i = 0; i < dx.shape.numel(); ++i) dx[i] = 0;
  for_each_weight(layout, dx.shape, dy.shape,
                  [&](auto i, auto o, double weight) { dx[i] += weight * dy[o]; });
}

std::vector<Sample<ResizeGrad>> ResizeGrad::samples() {
  std::vector<Sample<ResizeGrad>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Trial& t : trials()) {
      const Shape dy = ImageShape(t.image.n, t.image.c, t.size[0], t.size[1]).in(layout);
      samples.push_back({{layout, t.image.in(layout)}, {{{DType::f32, dy}}}});
    }
  return samples;
}

Value resize(Value x, Pair size) { return x.graph->apply1(Resize{.size = size}, {x}); }

static_assert(Operator<Resize> && Differentiable<Resize>);
static_assert(Operator<ResizeGrad>);

}  // namespace ridge
