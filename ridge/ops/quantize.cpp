#include "ridge/ops/quantize.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"
#include "ridge/ops/swiglu.h"

namespace ridge {

std::vector<TensorType> Quantize::infer(Types in) const {
  check_count(name, in, 1);
  check_min_rank(name, in, 0, 1);
  check_dtype(name, in, 0);
  if (!is_quantized(to))
    throw ShapeError("quantize: {} is neither f16 nor a float of 8 bits", name_of(to));
  if (transposed && to == DType::f16)
    throw ShapeError("quantize: products take f16 in any layout, so it is not transposed");
  if (!plain && !transposed) throw ShapeError("quantize: neither q nor its transpose is wanted");
  std::vector<TensorType> out{{DType::f32, {}}};
  const Shape& shape = in[0].shape;
  if (plain) out.push_back({to, shape});
  if (transposed) out.push_back({to, {shape[-1], shape.rows()}});
  return out;
}

Cost Quantize::cost(Types in, Types out) const {
  return streaming_cost(in[0].numel(), in, out);  // one product per element
}

void Quantize::reference(ReferenceCall& call) const {
  const ReferenceTensor& x = call.inputs[0];
  dispatch_quantized(to, [&]<class Q>() {
    double amax = 0;
    for (const double v : x.data) amax = std::max(amax, std::abs(v));
    const double scale = quantization_scale(static_cast<float>(amax), largest_of<Q>());
    call.outputs[0][0] = scale;
    const std::int64_t columns = x.shape[-1], rows = x.shape.rows();
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        // Rounded to f32 first, which what this stands for has been already.
        const auto exact = static_cast<float>(x[r * columns + c] / scale);
        const double q = static_cast<float>(Q(exact));
        if (plain) call.outputs[plain_output()][r * columns + c] = q;
        if (transposed) call.outputs[transposed_output()][c * rows + r] = q;
      }
  });
}

std::vector<Sample<Quantize>> Quantize::samples() {
  std::vector<Sample<Quantize>> samples;
  for (const DType to : {DType::f8e4m3, DType::f8e5m2, DType::f16})
    for (const auto& [plain, transposed] : {std::pair{true, false}, {false, true}, {true, true}}) {
      if (transposed && to == DType::f16) continue;
      // Single elements, odd rows, and tiles that are whole, cut at an edge and both.
      for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 5, 33}, Shape{130, 257},
                                 Shape{128, 128}, Shape{16, 8}, Shape{2, 72, 264}, Shape{272, 40}})
        samples.push_back(
            {{.to = to, .plain = plain, .transposed = transposed}, {{{DType::f32, shape}}}});
      // Spread so wide that the smaller ones are denormal or 0 in 8 bits.
      samples.push_back({{.to = to, .plain = plain, .transposed = transposed},
                         {{{DType::f32, {64, 96}}, -3e-4, 6e4}}});
    }
  return samples;
}

TensorType QuantizeSwiGlu::quantized(Types in) const {
  check_count(name, in, operands(in.size()).count);
  return gradient ? SwiGluGrad{}.infer(in.first(2)).front() : SwiGlu{}.infer(in).front();
}

std::vector<TensorType> QuantizeSwiGlu::infer(Types in) const {
  const TensorType x[] = {quantized(in)};
  std::vector<TensorType> out = into.infer(x);
  const Operands at = operands(in.size());
  if (at.scale == at.count) return out;
  check_type(name, in, at.scale, {DType::f32, {}});
  if (into.to != DType::f16 || !into.plain)
    throw ShapeError("{}: the result once more is in f16, beside a gradient in f16", name);
  out.push_back({into.to, in[at.dy].shape});
  return out;
}

Cost QuantizeSwiGlu::cost(Types in, Types out) const {
  const TensorType x[] = {quantized(in)};
  const Cost computed = gradient ? SwiGluGrad{}.cost(in.first(2), x) : SwiGlu{}.cost(in, x);
  return streaming_cost(computed.flops + into.cost(x, out).flops, in, out);
}

void QuantizeSwiGlu::reference(ReferenceCall& call) const {
  const Operands at = operands(call.inputs.size());
  const bool result = at.scale < at.count;
  const Shape& packed = call.inputs[at.packed].shape;
  std::vector<std::int64_t> dims(packed.dims().begin(), packed.dims().end());
  if (!gradient) dims.back() /= 2;
  const Shape shape(dims);
  std::vector<double> x(static_cast<std::size_t>(shape.numel()));
  const ReferenceTensor computed[] = {{shape, x}};
  ReferenceCall first{call.inputs.first(at.packed + 1), computed};
  ReferenceCall second{computed, call.outputs.first(call.outputs.size() - (result ? 1 : 0))};
  gradient ? SwiGluGrad{}.reference(first) : SwiGlu{}.reference(first);
  into.reference(second);
  if (!result) return;
  const ReferenceTensor& y = call.outputs.back();
  ReferenceCall again{call.inputs.subspan(at.packed, 1), {&y, 1}};
  SwiGlu{}.reference(again);
  for (double& v : y.data)
    v = static_cast<float>(Float16(static_cast<float>(v / call.inputs[at.scale][0])));
}

std::vector<Sample<QuantizeSwiGlu>> QuantizeSwiGlu::samples() {
  std::vector<Sample<QuantizeSwiGlu>> samples;
  for (const bool gradient : {false, true}) {
    const DType narrow = gradient ? DType::f8e5m2 : DType::f8e4m3;
    for (const Quantize& into : {Quantize{.to = narrow},
                                 {.to = narrow, .plain = false, .transposed = true},
                                 {.to = narrow, .transposed = true},
                                 {.to = DType::f16}})
      for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                          {3, 7},
                                          {130, 257},
                                          {16, 8},
                                          {128, 128},
                                          {144, 264},
                                          {272, 40}}) {
        Sample<QuantizeSwiGlu> sample{{.into = into, .gradient = gradient}, {}};
        if (gradient) sample.inputs.push_back({{DType::f32, {rows, columns}}});
        sample.inputs.push_back({{DType::f32, {rows, 2 * columns}}, -6.0, 6.0});
        samples.push_back(sample);
        if (!gradient || into.to != DType::f16) continue;
        sample.inputs.push_back({{DType::f32, {}}, 0x1p-11, 0x1p-11});
        samples.push_back(sample);
      }
  }
  return samples;
}

static_assert(Operator<Quantize> && Operator<QuantizeSwiGlu>);

}  // namespace ridge
