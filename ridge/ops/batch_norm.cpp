#include "ridge/ops/batch_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ridge/ops/check.h"
#include "ridge/ops/grad_builder.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace {

TensorType per_channel(const TensorType& x, ImageLayout layout) {
  return {DType::f32, {ImageShape(x.shape, layout).c}};
}

// Operand `first` is an image, and the next ones are vectors of its channels.
void check_image_and_vectors(std::string_view op, Types in, std::size_t first, std::size_t vectors,
                             ImageLayout layout) {
  check_rank(op, in, first, 4);
  check_dtype(op, in, first);
  for (std::size_t i = first + 1; i <= first + vectors; ++i)
    check_type(op, in, i, per_channel(in[first], layout));
}

void check_epilogue(std::string_view op, bool residual, Epilogue epilogue) {
  if (residual && epilogue != Epilogue::none && epilogue != Epilogue::relu)
    throw ShapeError("{} with a residual takes none or relu behind it, not {}", op,
                     name_of(epilogue));
}

// f(channel, element) for every element of an image.
template <class F>
void for_each_element(const Shape& shape, ImageLayout layout, const F& f) {
  const ImageShape image(shape, layout);
  const ImageStrides strides(image, layout);
  for (std::int64_t i = 0; i < shape.numel(); ++i) f(i / strides.c % image.c, i);
}

std::vector<Shape> shapes(ImageLayout layout) {
  std::vector<Shape> shapes;
  for (const ImageShape& image :
       {ImageShape{2, 1, 1, 1}, ImageShape{2, 3, 5, 7}, ImageShape{5, 33, 1, 1},
        ImageShape{1, 4, 9, 3}, ImageShape{3, 64, 8, 8}, ImageShape{2, 5, 70, 61},
        ImageShape{130, 24, 4, 5}})
    shapes.push_back(image.in(layout));
  return shapes;
}

// What follows a norm that is not tested without.
constexpr Epilogue epilogues[] = {Epilogue::relu, Epilogue::relu6, Epilogue::silu,
                                  Epilogue::hard_swish, Epilogue::gelu};

// Shapes of samples: with channels that fill vectors, and others.
std::vector<Shape> fused_shapes(ImageLayout layout) {
  return {ImageShape{2, 3, 5, 7}.in(layout), ImageShape{3, 64, 9, 8}.in(layout)};
}

}  // namespace

std::vector<TensorType> BatchNorm::infer(Types in) const {
  if (parts < 1 || parts > most_parts || (parts > 1 && layout == ImageLayout::nchw))
    throw ShapeError("{} takes one image or, with channels last, up to {}, not {}", name,
                     most_parts, parts);
  const Operands at = operands();
  check_count(name, in, at.count);
  TensorType y = in[0];
  std::int64_t channels = 0;
  for (std::size_t p = 0; p < parts; ++p) {
    check_rank(name, in, p, 4);
    check_dtype(name, in, p);
    ImageShape image(in[p].shape, layout);
    channels += image.c;
    image.c = channels;
    y.shape = image.in(layout);
    image.c = ImageShape(in[0].shape, layout).c;
    if (image.in(layout) != in[0].shape || in[p].dtype != in[0].dtype)
      throw ShapeError("{}: images differ in more than their channels: {}", name, list_of(in));
  }
  for (const std::size_t i : {at.weight, at.bias, at.mean, at.variance})
    check_type(name, in, i, per_channel(y, layout));
  return {y};
}

Cost BatchNorm::cost(Types in, Types out) const {
  // Per element the difference from the mean, a product and an add; per channel the factor: add,
  // root, division.
  return streaming_cost(3 * out[0].numel() + 3 * in[operands().weight].numel(), in, out);
}

// PyTorch's images have channels first, wherever they lie.
std::string_view BatchNorm::aten_name(Types) const {
  return parts == 1 && !relu && layout == ImageLayout::nchw ? "aten::batch_norm" : "";
}

void BatchNorm::reference(ReferenceCall& call) const {
  const Operands at = operands();
  const auto &weight = call.inputs[at.weight], &bias = call.inputs[at.bias];
  const auto &mean = call.inputs[at.mean], &variance = call.inputs[at.variance];
  const auto& y = call.outputs[0];
  const std::int64_t channels = weight.shape.numel();
  std::int64_t before = 0;
  for (std::size_t p = 0; p < parts; ++p) {
    const auto& x = call.inputs[p];
    const std::int64_t own = ImageShape(x.shape, layout).c;
    for_each_element(x.shape, layout, [&](auto part_channel, auto i) {
      const std::int64_t c = before + part_channel;
      const std::int64_t to = parts == 1 ? i : i / own * channels + c;
      y[to] = (x[i] - mean[c]) / std::sqrt(variance[c] + double{eps}) * weight[c] + bias[c];
      if (relu) y[to] = std::max(y[to], 0.0);
    });
    before += own;
  }
}

std::vector<Sample<BatchNorm>> BatchNorm::samples() {
  std::vector<Sample<BatchNorm>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Shape& shape : shapes(layout)) {
      const TensorType x{DType::f32, shape}, c = per_channel(x, layout);
      samples.push_back({{.layout = layout, .relu = samples.size() % 2 == 1},
                         {{x, -2.0, 3.0}, {c, 0.5, 1.5}, {c}, {c}, {c, 0.1, 2.0}}});
    }
  // Several images, of channels that fill vectors and of others.
  for (const auto& [pixels, channels] :
       {std::pair<Pair, std::vector<std::int64_t>>{{5, 7}, {3, 1, 8, 2}},
        {{6, 6}, {64, 32, 32, 16, 48}},
        {{1, 1}, {8, 8}},
        {{33, 9}, std::vector<std::int64_t>(12, 8)}}) {
    Sample<BatchNorm> sample{{.layout = ImageLayout::nhwc, .parts = channels.size(), .relu = true},
                             {}};
    std::int64_t sum = 0;
    for (const std::int64_t c : channels) {
      sample.inputs.push_back({{DType::f32, {2, pixels[0], pixels[1], c}}, -2.0, 3.0});
      sum += c;
    }
    const TensorType c{DType::f32, {sum}};
    for (const SampleInput& vector : {SampleInput{c, 0.5, 1.5}, {c}, {c}, {c, 0.1, 2.0}})
      sample.inputs.push_back(vector);
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<TensorType> BatchNormTrain::infer(Types in) const {
  check_epilogue(name, residual, epilogue);
  const Operands at = operands();
  check_count(name, in, at.count);
  check_image_and_vectors(name, in, at.x, 4, layout);
  if (residual) check_same_type(name, in, at.residual, at.x);
  const TensorType &x = in[at.x], &weight = in[at.weight];
  if (ranks * x.numel() == weight.numel())
    throw ShapeError("{} needs more than one element of each channel: {}", name, list_of(in));
  return {x, weight, weight, in[at.mean], in[at.variance]};
}

Cost BatchNormTrain::cost(Types in, Types out) const {
  // Per element: the mean's sum (1); difference, square and sum of the variance (3); product and
  // add (2). Per channel: mean, variance, eps, root, inverse, factor (6); and the running
  // statistics: a subtraction, product and add each, and the unbiased variance (7).
  const std::int64_t each = 6 + (residual ? 1 : 0) + element_function(epilogue).flops;
  const TensorType &x = in[operands().x], &weight = in[operands().weight];
  return streaming_cost(each * x.numel() + 13 * weight.numel(), in, out);
}

std::vector<Value> BatchNormTrain::grad(GradBuilder& b) const {
  const Operands at = operands();
  std::vector<Value> values{b.grad(), b.input(at.x), b.input(at.weight), b.output(1), b.output(2)};
  const bool has_kinks = epilogue != Epilogue::none;
  if (has_kinks) values.push_back(residual ? b.output(0) : b.input(at.bias));
  std::vector<Value> grads = b.graph().apply(BatchNormGrad{.layout = layout,
                                                           .residual = residual && has_kinks,
                                                           .epilogue = epilogue,
                                                           .ranks = ranks},
                                             values);
  if (residual) {
    const Value of_residual = has_kinks ? grads.back() : b.grad();
    grads.resize(3);
    grads.insert(grads.end(), {Value{}, Value{}, of_residual});
  }
  return grads;
}

std::string_view BatchNormTrain::aten_name(Types) const {
  const bool plain = !residual && epilogue == Epilogue::none && layout == ImageLayout::nchw;
  return plain ? "aten::batch_norm" : "";
}

void BatchNormTrain::reference(ReferenceCall& call) const {
  const Operands at = operands();
  const auto &x = call.inputs[at.x], &weight = call.inputs[at.weight], &bias = call.inputs[at.bias];
  const auto &y = call.outputs[0], &mean = call.outputs[1], &rstd = call.outputs[2];
  const std::int64_t channels = weight.shape.numel();
  const auto count = static_cast<double>(x.shape.numel() / channels);
  std::vector<double> variance(static_cast<std::size_t>(channels));
  auto variance_of = [&](std::int64_t c) -> double& {
    return variance[static_cast<std::size_t>(c)];
  };
  for (std::int64_t c = 0; c < channels; ++c) mean[c] = 0;
  for_each_element(x.shape, layout, [&](auto c, auto i) { mean[c] += x[i] / count; });
  for_each_element(x.shape, layout, [&](auto c, auto i) {
    variance_of(c) += (x[i] - mean[c]) * (x[i] - mean[c]) / count;
  });
  for (std::int64_t c = 0; c < channels; ++c) {
    rstd[c] = 1.0 / std::sqrt(variance_of(c) + double{eps});
    const double m = momentum, unbiased = variance_of(c) * count / (count - 1);
    call.outputs[3][c] = (1 - m) * call.inputs[at.mean][c] + m * mean[c];
    call.outputs[4][c] = (1 - m) * call.inputs[at.variance][c] + m * unbiased;
  }
  for_each_element(x.shape, layout, [&](auto c, auto i) {
    const double norm = (x[i] - mean[c]) * rstd[c] * weight[c] + bias[c];
    y[i] = element_function(epilogue).value(residual ? norm + call.inputs[at.residual][i] : norm);
  });
}

std::vector<Sample<BatchNormTrain>> BatchNormTrain::samples() {
  std::vector<Sample<BatchNormTrain>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Shape& shape : shapes(layout)) {
      const TensorType x{DType::f32, shape}, c = per_channel(x, layout);
      samples.push_back(
          {{.layout = layout}, {{x, -2.0, 3.0}, {c, 0.5, 1.5}, {c}, {c}, {c, 0.1, 2.0}}});
    }
  // A mean far from zero.
  const TensorType x{DType::f32, {4, 6, 6, 8}}, c{DType::f32, {8}};
  samples.push_back({{.momentum = 0.3f, .layout = ImageLayout::nhwc},
                     {{x, 20.0, 21.0}, {c, 0.5, 1.5}, {c}, {c}, {c, 0.1, 2.0}}});
  for (const ImageLayout layout : image_layouts)
    for (const Shape& shape : fused_shapes(layout)) {
      const TensorType image{DType::f32, shape}, vector = per_channel(image, layout);
      const std::vector<SampleInput> operands{
          {image, -2.0, 3.0}, {vector, 0.5, 1.5}, {vector}, {vector}, {vector, 0.1, 2.0}};
      for (const Epilogue epilogue : epilogues)
        samples.push_back({{.layout = layout, .epilogue = epilogue}, operands});
      std::vector<SampleInput> with_residual = operands;
      with_residual.push_back({image});
      for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu})
        samples.push_back(
            {{.layout = layout, .residual = true, .epilogue = epilogue}, with_residual});
    }
  return samples;
}

std::optional<Alias> BatchNormTrain::aliased_input(std::uint32_t output, Types) const {
  if (output < 3) return std::nullopt;
  return Alias{output};  // the running statistics
}

// Its moments, to each of the others: count, mean and squares of each channel.
std::int64_t BatchNormTrain::sent_bytes(Types in) const {
  return (ranks - 1) * 3 * in[operands().weight].numel() *
         static_cast<std::int64_t>(sizeof(double));
}

// Both sums of each channel.
std::int64_t BatchNormGrad::sent_bytes(Types in) const {
  return (ranks - 1) * 2 * in[operands().weight].numel() *
         static_cast<std::int64_t>(sizeof(double));
}

// Moved by nothing, they keep their bits.
BatchNormTrain BatchNormTrain::repetition() const {
  BatchNormTrain op = *this;
  op.momentum = 0;
  return op;
}

std::vector<TensorType> BatchNormGrad::infer(Types in) const {
  check_epilogue(name, residual, epilogue);
  if (residual && epilogue == Epilogue::none)
    throw ShapeError("{} has no work for the gradient of a residual without an epilogue", name);
  const Operands at = operands();
  check_count(name, in, at.count);
  check_image_and_vectors(name, in, at.x, 3, layout);
  check_same_type(name, in, at.dy, at.x);
  if (summed) check_same_type(name, in, at.summand, at.x);
  if (residual)
    check_same_type(name, in, at.kinks, at.x);
  else if (epilogue != Epilogue::none)
    check_type(name, in, at.kinks, in[at.weight]);
  std::vector<TensorType> out{in[at.x], in[at.weight], in[at.weight]};
  if (residual) out.push_back(in[at.x]);
  return out;
}

Cost BatchNormGrad::cost(Types in, Types out) const {
  // Per element: xhat (2), its product with g and two sums (3); dx: xhat times a mean, two
  // subtractions, the factor (4); of g the sum of dy (1), the norm (2), the derivative and its
  // product. Per channel: that factor and two means (3).
  std::int64_t each = 9 + (summed ? 1 : 0);
  if (epilogue != Epilogue::none && !residual)
    each += 2 + element_function(epilogue).gradient_flops;
  return streaming_cost(each * out[0].numel() + 3 * out[1].numel(), in, out);
}

void BatchNormGrad::reference(ReferenceCall& call) const {
  const Operands at = operands();
  const auto &x = call.inputs[at.x], &weight = call.inputs[at.weight];
  const auto &mean = call.inputs[at.mean], &rstd = call.inputs[at.rstd];
  const auto &dx = call.outputs[0], &dweight = call.outputs[1], &dbias = call.outputs[2];
  const std::int64_t channels = weight.shape.numel();
  const auto count = static_cast<double>(x.shape.numel() / channels);
  const auto xhat = [&](auto c, auto i) { return (x[i] - mean[c]) * rstd[c]; };
  std::vector<double> g(static_cast<std::size_t>(x.shape.numel()));
  for (std::int64_t c = 0; c < channels; ++c) dweight[c] = dbias[c] = 0;
  for_each_element(x.shape, layout, [&](auto c, auto i) {
    double dy = call.inputs[at.dy][i];
    if (summed) dy += call.inputs[at.summand][i];
    if (residual)
      dy = call.inputs[at.kinks][i] > 0 ? dy : 0.0;
    else if (epilogue != Epilogue::none)
      dy *=
          element_function(epilogue).derivative(xhat(c, i) * weight[c] + call.inputs[at.kinks][c]);
    g[static_cast<std::size_t>(i)] = dy;
    if (residual) call.outputs[3][i] = dy;
    dbias[c] += dy;
    dweight[c] += dy * xhat(c, i);
  });
  for_each_element(x.shape, layout, [&](auto c, auto i) {
    dx[i] = weight[c] * rstd[c] *
            (g[static_cast<std::size_t>(i)] - dbias[c] / count - xhat(c, i) * dweight[c] / count);
  });
}

std::vector<Sample<BatchNormGrad>> BatchNormGrad::samples() {
  std::vector<Sample<BatchNormGrad>> samples;
  for (const ImageLayout layout : image_layouts)
    for (const Shape& shape : shapes(layout)) {
      const TensorType x{DType::f32, shape}, c = per_channel(x, layout);
      samples.push_back({{.layout = layout}, {{x}, {x}, {c, 0.5, 1.5}, {c}, {c, 0.5, 2.0}}});
    }
  for (const ImageLayout layout : image_layouts)
    for (const Shape& shape : fused_shapes(layout)) {
      const TensorType x{DType::f32, shape}, c = per_channel(x, layout);
      const auto sample = [&](bool summed, bool residual, Epilogue epilogue) {
        std::vector<SampleInput> in(summed ? 3 : 2, SampleInput{x});
        for (const SampleInput& vector : {SampleInput{c, 0.5, 1.5}, {c}, {c, 0.5, 2.0}})
          in.push_back(vector);
        if (residual)
          in.push_back({x});
        else if (epilogue != Epilogue::none)
          in.push_back({c});
        samples.push_back(
            {{.layout = layout, .summed = summed, .residual = residual, .epilogue = epilogue},
             std::move(in)});
      };
      sample(true, false, Epilogue::none);
      for (const bool summed : {false, true}) sample(summed, true, Epilogue::relu);
      for (const Epilogue epilogue : epilogues) sample(samples.size() % 2 == 0, false, epilogue);
    }
  return samples;
}

Value batch_norm(Value x, Value weight, Value bias, Value mean, Value variance, float eps) {
  return x.graph->apply1(BatchNorm{.eps = eps}, {x, weight, bias, mean, variance});
}

Value batch_norm_train(Value x, Value weight, Value bias, Value mean, Value variance, float eps,
                       float momentum) {
  return x.graph->apply(BatchNormTrain{.eps = eps, .momentum = momentum},
                        std::array{x, weight, bias, mean, variance})[0];
}

static_assert(Operator<BatchNorm>);
static_assert(Operator<BatchNormTrain> && Differentiable<BatchNormTrain> &&
              Aliasing<BatchNormTrain>);
static_assert(Operator<BatchNormGrad>);

}  // namespace ridge
