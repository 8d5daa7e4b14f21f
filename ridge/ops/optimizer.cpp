#include "ridge/ops/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ridge/ops/check.h"
#include "ridge/ops/op.h"

namespace ridge {

std::vector<TensorType> Accumulate::infer(Types in) const {
  check_count(name, in, 2);
  check_dtype(name, in, 0, dtypes);
  check_same_type(name, in, 0, 1);
  return {in[0]};
}

Cost Accumulate::cost(Types in, Types out) const {
  // Per element: one sum.
  return streaming_cost(in[0].numel(), in, out);
}

std::optional<Alias> Accumulate::aliased_input(std::uint32_t, Types) const {
  return Alias{.input = 0};
}

void Accumulate::reference(ReferenceCall& call) const {
  const auto &acc = call.inputs[0], &x = call.inputs[1], &y = call.outputs[0];
  for (std::int64_t i = 0; i < acc.shape.numel(); ++i) y[i] = acc[i] + x[i];
}

std::vector<Sample<Accumulate>> Accumulate::samples() {
  std::vector<Sample<Accumulate>> samples;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7, 5}, Shape{3, 20011}})
    samples.push_back({{}, {{{DType::f32, shape}}, {{DType::f32, shape}}}});
  return samples;
}

std::vector<TensorType> GlobalNorm::infer(Types in) const {
  if (in.empty()) throw ShapeError("global_norm takes at least 1 operand");
  for (std::size_t i = 0; i < in.size(); ++i) check_dtype(name, in, i, dtypes);
  return {{DType::f32, {}}};
}

Cost GlobalNorm::cost(Types in, Types out) const {
  // Per element: square and sum. Once: the root.
  std::int64_t elements = 0;
  for (const TensorType& type : in) elements += type.numel();
  return streaming_cost(2 * elements + 1, in, out);
}

void GlobalNorm::reference(ReferenceCall& call) const {
  double sum = 0;
  for (const ReferenceTensor& x : call.inputs)
    for (std::int64_t i = 0; i < x.shape.numel(); ++i) sum += x[i] * x[i];
  call.outputs[0][0] = std::sqrt(sum);
}

std::vector<Sample<GlobalNorm>> GlobalNorm::samples() {
  auto f32 = [](Shape shape) { return SampleInput{{DType::f32, shape}}; };
  return {{{}, {f32({})}},
          {{}, {f32({7, 5}), f32({1}), f32({13})}},
          {{}, {f32({3, 20011}), f32({16384}), f32({257})}}};
}

std::vector<TensorType> AdamW::infer(Types in) const {
  check_count(name, in, max_norm > 0 ? 6 : 5);
  check_dtype(name, in, 0, dtypes);
  for (std::size_t i = 1; i < 4; ++i) check_same_type(name, in, 0, i);
  check_type(name, in, 4, schedule_type());
  if (max_norm > 0) check_type(name, in, 5, {DType::f32, {}});
  return {in[0], in[0], in[0]};
}

Cost AdamW::cost(Types in, Types out) const {
  // Per element: decay (1), exp_avg (3), exp_avg_sq (4), root, correction and eps (3), quotient,
  // step and difference (3), clipping or scaling (1). The few scalars made once a launch are not
  // counted.
  return streaming_cost((max_norm > 0 || scaled ? 15 : 14) * in[0].numel(), in, out);
}

std::optional<Alias> AdamW::aliased_input(std::uint32_t output, Types) const {
  constexpr std::uint32_t inputs[] = {0, 2, 3};
  return Alias{.input = inputs[output]};
}

void AdamW::reference(ReferenceCall& call) const {
  const auto &param = call.inputs[0], &grad = call.inputs[1], &m = call.inputs[2],
             &v = call.inputs[3], &schedule = call.inputs[4];
  const double unscale = scaled ? schedule[3] : 1.0;
  if (unscale == 0) {
    for (const auto& [from, to] : {std::pair(0, 0), {2, 1}, {3, 2}})
      std::ranges::copy(call.inputs[from].data, call.outputs[to].data.begin());
    return;
  }
  const double norm = max_norm > 0 ? call.inputs[5][0] * unscale : 0.0;
  const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  for (std::int64_t i = 0; i < param.shape.numel(); ++i) {
    const double g = grad[i] * unscale * clip;
    const double new_m = beta1 * m[i] + (1.0 - beta1) * g;
    const double new_v = beta2 * v[i] + (1.0 - beta2) * g * g;
    const double decayed = param[i] - schedule[0] * weight_decay * param[i];
    const double step = new_m / schedule[1] / (std::sqrt(new_v / schedule[2]) + eps);
    call.outputs[0][i] = decayed - schedule[0] * step;
    call.outputs[1][i] = new_m;
    call.outputs[2][i] = new_v;
  }
}

std::vector<Sample<AdamW>> AdamW::samples() {
  std::vector<Sample<AdamW>> samples;
  for (const AdamW& op : {AdamW{}, AdamW{.max_norm = 1.0}, AdamW{.scaled = true},
                          AdamW{.max_norm = 0.5, .scaled = true}})
    for (const Shape& shape : {Shape{1}, Shape{7, 5}, Shape{3, 20011}}) {
      const TensorType type{DType::f32, shape};
      Sample<AdamW> sample{
          op, {{type}, {type}, {type}, {type, 0.01, 1.0}, {op.schedule_type(), 0.1, 0.9}}};
      // Norms on both sides of the limit.
      if (op.max_norm > 0) sample.inputs.push_back({{DType::f32, {}}, 0.5, 3.0});
      samples.push_back(sample);
    }
  return samples;
}

std::size_t AdamWAll::copies() const {
  return static_cast<std::size_t>(std::ranges::count(copied, true));
}

std::vector<TensorType> AdamWAll::infer(Types in) const {
  const std::size_t first = shared_operands(), others = first + copies();
  if (in.size() < others + 4 || (in.size() - others) % 4 != 0)
    throw ShapeError("adamw_all takes {} operands and 4 for each parameter: {}", others,
                     list_of(in));
  const std::size_t count = parameters(in.size());
  if (!copied.empty() && copied.size() != count)
    throw ShapeError("adamw_all: copied marks {} parameters of {}", copied.size(), count);
  check_type(name, in, 0, each.schedule_type());
  if (first == 2) check_type(name, in, 1, {DType::f32, {}});
  std::vector<TensorType> out;
  for (std::size_t p = first; p < first + 4 * count; p += 4) {
    check_dtype(name, in, p, dtypes);
    for (std::size_t i = 1; i < 4; ++i) check_same_type(name, in, p, p + i);
    out.insert(out.end(), outputs_each(), in[p]);
  }
  std::size_t copy = first + 4 * count;
  for (std::size_t p = 0; p < copied.size(); ++p)
    if (copied[p]) {
      check_dtype(name, in, copy, only_16_bit);
      check_type(name, in, copy, {in[copy].dtype, in[first + 4 * p].shape});
      out.push_back(in[copy++]);
    }
  return out;
}

Cost AdamWAll::cost(Types in, Types out) const {
  std::int64_t flops = 0;
  const std::size_t read = in.size() - copies();
  for (std::size_t p = shared_operands(); p < read; p += 4)
    flops += each.cost(in.subspan(p, 4), {}).flops;
  return streaming_cost(flops, in.first(read), out);
}

std::optional<Alias> AdamWAll::aliased_input(std::uint32_t output, Types) const {
  constexpr std::uint32_t inputs[] = {0, 2, 3, 1};
  const std::uint32_t p = output / outputs_each();
  if (const auto count = static_cast<std::uint32_t>(copied.size()); count > 0 && p >= count)
    return Alias{shared_operands() + 4 * count + output - count * outputs_each()};
  return Alias{shared_operands() + 4 * p + inputs[output % outputs_each()]};
}

void AdamWAll::reference(ReferenceCall& call) const {
  const std::size_t first = shared_operands(), count = parameters(call.inputs.size());
  const bool skipped = each.scaled && call.inputs[0][3] == 0;
  std::size_t copy = count * outputs_each();
  for (std::size_t p = 0; p < count; ++p) {
    const auto parameter = call.inputs.subspan(first + 4 * p, 4);
    std::vector<ReferenceTensor> operands(parameter.begin(), parameter.end());
    operands.insert(operands.end(), call.inputs.begin(), call.inputs.begin() + first);
    const auto outputs = call.outputs.subspan(p * outputs_each(), outputs_each());
    ReferenceCall alone{operands, outputs};
    each.reference(alone);
    if (zero_grad) std::ranges::fill(outputs[3].data, 0.0);
    if (copied.empty() || !copied[p]) continue;
    const std::size_t held = first + 4 * count + copy - count * outputs_each();
    std::ranges::copy(skipped ? call.inputs[held].data : outputs[0].data,
                      call.outputs[copy++].data.begin());
  }
}

std::vector<Sample<AdamWAll>> AdamWAll::samples() {
  std::vector<Sample<AdamWAll>> samples;
  auto add = [&](const AdamWAll& op, const std::vector<Shape>& shapes, DType dtype = DType::bf16) {
    Sample<AdamWAll> sample{op, {{op.each.schedule_type(), 0.1, 0.9}}};
    if (op.each.max_norm > 0) sample.inputs.push_back({{DType::f32, {}}, 0.5, 3.0});
    for (const Shape& shape : shapes) {
      const TensorType type{DType::f32, shape};
      for (const double low : {-1.0, -1.0, -1.0, 0.01}) sample.inputs.push_back({type, low, 1.0});
    }
    for (std::size_t p = 0; p < op.copied.size(); ++p)
      if (op.copied[p]) sample.inputs.push_back({{dtype, shapes[p]}});
    samples.push_back(sample);
  };
  const std::vector<Shape> several{{7, 5}, {1}, {3, 20011}};
  add({}, {{13}});
  add({}, several);
  add({.each = {.max_norm = 1.0}, .zero_grad = true}, several);
  add({.zero_grad = true, .copied = {true, false, true}}, several);
  add({.each = {.max_norm = 1.0}, .copied = {false, true, false}}, several);
  add({.zero_grad = true, .copied = {true, false, true}}, several, DType::f16);
  add({.each = {.max_norm = 0.5, .scaled = true}, .copied = {false, true, true}}, several,
      DType::f16);
  return samples;
}

static_assert(Operator<Accumulate> && Aliasing<Accumulate>);
static_assert(Operator<GlobalNorm>);
static_assert(Operator<AdamW> && Aliasing<AdamW>);
static_assert(Operator<AdamWAll> && Aliasing<AdamWAll>);

}  // namespace ridge
