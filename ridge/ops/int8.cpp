#include "ridge/ops/int8.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ridge/ops/check.h"

namespace ridge {
namespace {

// Rounded to f32 first, as kernels do: halves are common among numbers of few digits.
double to_int8(double x) {
  return std::nearbyint(std::clamp(static_cast<double>(static_cast<float>(x)), -127.0, 127.0));
}

// The convolution without what is done to its sums. Its rules for shapes and products hold here.
Conv2d plain(const ConvGeometry& geometry) { return {geometry}; }

Shape convolved(const Int8Conv2d& op, Types in) {
  const TensorType operands[] = {{DType::f32, in[0].shape}, {DType::f32, in[1].shape}};
  return plain(op).infer(operands)[0].shape;
}

}  // namespace

std::vector<TensorType> Int8Quantize::infer(Types in) const {
  check_count(name, in, 1);
  check_dtype(name, in, 0);
  return {{DType::s8, in[0].shape}};
}

Cost Int8Quantize::cost(Types in, Types out) const {
  return streaming_cost(in[0].numel(), in, out);
}

void Int8Quantize::reference(ReferenceCall& call) const {
  const double inverse = 1.0f / scale;
  for (std::int64_t i = 0; i < call.inputs[0].shape.numel(); ++i)
    call.outputs[0][i] = to_int8(call.inputs[0][i] * inverse);
}

std::vector<Sample<Int8Quantize>> Int8Quantize::samples() {
  std::vector<Sample<Int8Quantize>> samples;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257}})
    samples.push_back({{.scale = 0x1p-7f}, {{{DType::f32, shape}, -1.25, 1.25}}});
  samples.push_back({{.scale = 0.037f}, {{{DType::f32, {5, 64}}, -5, 5}}});
  return samples;
}

std::vector<TensorType> Int8Weights::infer(Types in) const {
  check_count(name, in, 1);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0);
  return {{DType::s8, in[0].shape}, {DType::f32, {in[0].shape[0]}}};
}

Cost Int8Weights::cost(Types in, Types out) const {
  return streaming_cost(in[0].numel(), in, out);  // a division each
}

void Int8Weights::reference(ReferenceCall& call) const {
  const ReferenceTensor &w = call.inputs[0], &q = call.outputs[0], &scales = call.outputs[1];
  const std::int64_t kernels = w.shape[0], length = w.shape.numel() / kernels;
  for (std::int64_t o = 0; o < kernels; ++o) {
    double amax = 0;
    for (std::int64_t i = 0; i < length; ++i) amax = std::max(amax, std::abs(w[o * length + i]));
    const double scale = int8_scale(static_cast<float>(amax));
    scales[o] = scale;
    for (std::int64_t i = 0; i < length; ++i)
      q[o * length + i] = to_int8(w[o * length + i] / scale);
  }
}

std::vector<Sample<Int8Weights>> Int8Weights::samples() {
  std::vector<Sample<Int8Weights>> samples;
  for (const Shape& shape :
       {Shape{1}, Shape{3}, Shape{5, 7}, Shape{6, 3, 3, 2}, Shape{33, 1, 1, 65}, Shape{8, 2048}})
    samples.push_back({{}, {{{DType::f32, shape}}}});
  samples.push_back({{}, {{{DType::f32, {2, 9}}, 0, 1e-30}}});  // nothing but zeros in 16 bits
  return samples;
}

std::vector<TensorType> Int8Conv2d::infer(Types in) const {
  const Operands at = operands();
  check_count(name, in, at.count);
  if (layout != ImageLayout::nhwc) throw ShapeError("{}: only with channels last", name);
  for (const std::size_t i : {at.x, at.weight})
    if (in[i].dtype != DType::s8)
      throw ShapeError("{} does not take {} as operand {}: {}", name, name_of(in[i].dtype), i,
                       list_of(in));
  if (out == DType::i32 || is_float8(out))
    throw ShapeError("{}: results are in s8 or a floating dtype, not in {}", name, name_of(out));
  const TensorType y{out, convolved(*this, in)};
  for (const std::size_t i : {at.weight_scale, at.bias})
    check_type(name, in, i, {DType::f32, {in[at.weight].shape[0]}});
  if (residual) check_type(name, in, at.residual, y);
  return {y};
}

Cost Int8Conv2d::cost(Types in, Types results) const {
  const TensorType operands[] = {{DType::f32, in[0].shape}, {DType::f32, in[1].shape}};
  const Cost products = plain(*this).cost(operands, results);
  // A factor and a bias for each result; the residual's; one more of those that are rounded.
  const std::int64_t others =
      2 + 2 * residual + element_function(epilogue).flops + (out == DType::s8);
  Cost cost = streaming_cost(products.flops + others * results[0].numel(), in, results);
  cost.macs = products.macs;
  return cost;
}

void Int8Conv2d::reference(ReferenceCall& call) const {
  ReferenceCall sums{call.inputs.first(2), call.outputs};
  plain(*this).reference(sums);
  const ReferenceTensor& y = call.outputs[0];
  const std::int64_t channels = y.shape[-1];
  const Operands at = operands();
  for (std::int64_t i = 0; i < y.shape.numel(); ++i) {
    const double factor = double{x_scale} * call.inputs[at.weight_scale][i % channels];
    double sum = factor * y[i] + call.inputs[at.bias][i % channels];
    if (residual) sum += double{residual_scale} * call.inputs[at.residual][i];
    sum = element_function(epilogue).value(sum);
    y[i] = out == DType::s8 ? to_int8(sum / double{y_scale}) : sum;
  }
}

// Scales of x and of weights, and biases, are powers of two and multiples of one, so that all there
// is to round is the result.
std::vector<Sample<Int8Conv2d>> Int8Conv2d::samples() {
  std::vector<Sample<Int8Conv2d>> samples;
  const auto add = [&](const Sample<Conv2d>& of, DType out, bool residual, Epilogue epilogue) {
    const Shape &x = of.inputs[0].type.shape, &weight = of.inputs[1].type.shape;
    Int8Conv2d op{of.op};
    op.out = out;
    op.residual = residual;
    op.epilogue = epilogue;
    op.x_scale = 0x1p-6f;
    op.residual_scale = out == DType::s8 ? 0x1p-5f : 1.0f;
    op.y_scale = 0x1p-4f;
    const Shape kernels{weight[0]};
    Sample<Int8Conv2d> sample{op,
                              {{{DType::s8, x}, -127, 127},
                               {{DType::s8, weight}, -127, 127},
                               {{DType::f32, kernels}, 0x1p-10, 0x1p-10},
                               {{DType::f32, kernels}, -2, 2}}};
    if (residual) {
      const TensorType types[] = {{DType::s8, x}, {DType::s8, weight}};
      const double range = out == DType::s8 ? 127 : 2;
      sample.inputs.push_back({{out, convolved(op, types)}, -range, range});
    }
    samples.push_back(std::move(sample));
  };
  std::vector<Sample<Conv2d>> convolutions = Conv2d::samples();
  std::erase_if(convolutions, [](const Sample<Conv2d>& s) {
    return s.op.layout != ImageLayout::nhwc || s.op.residual || s.op.epilogue != Epilogue::none;
  });
  constexpr DType results[] = {DType::s8, DType::f32, DType::f16, DType::bf16};
  constexpr Epilogue epilogues[] = {Epilogue::relu, Epilogue::none,       Epilogue::relu6,
                                    Epilogue::silu, Epilogue::hard_swish, Epilogue::gelu};
  for (std::size_t i = 0; i < convolutions.size(); ++i) {
    add(convolutions[i], DType::s8, i % 2 == 1, epilogues[i % 3]);
    add(convolutions[i], results[1 + i % 3], i % 2 == 0, epilogues[i % 6]);
  }
  // A linear layer, and channels by sixteens in tiles that are whole, cut at an edge and many.
  for (const auto& [x, weight] : {std::pair{Shape{1, 70, 1, 72}, Shape{136, 1, 1, 72}},
                                  {Shape{1, 300, 1, 208}, Shape{272, 1, 1, 208}},
                                  {Shape{2, 9, 7, 64}, Shape{80, 3, 3, 64}},
                                  {Shape{3, 5, 5, 144}, Shape{32, 3, 3, 144}}}) {
    Sample<Conv2d> of{{{.padding = {weight[1] / 2, weight[1] / 2}, .layout = ImageLayout::nhwc}},
                      {{{DType::f32, x}}, {{DType::f32, weight}}}};
    for (const DType out : results)
      for (const bool residual : {false, true}) add(of, out, residual, Epilogue::relu);
    add(of, DType::f16, true, Epilogue::gelu);
  }
  return samples;
}

static_assert(Operator<Int8Quantize>);
static_assert(Operator<Int8Weights>);
static_assert(Operator<Int8Conv2d>);

}  // namespace ridge
